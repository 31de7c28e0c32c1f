"""Values that outlive the process, above all compiled programs.

Where
    ``$DSE_CACHE``, else ``$XDG_CACHE_HOME/dse``, else ``~/.cache/dse``; in it a folder per user, ``kept-UID``, with one
    file per value and the file ``key``. ``DSE_CACHE=0`` disables the cache. JAX's own compilation cache, which verifies
    nothing, is not used unless the user has configured it.

Threats
    A cached program is machine code in a pickle: whoever can write one runs code as the user who loads it, and one
    flipped bit gives wrong numbers or a crash. Therefore a file begins with its signature, HMAC-SHA256 of its name and
    content by the user's key, which is verified before anything parses a byte; the name is the hash of the inputs of
    the value, so that a valid file under another name is refused like a damaged one. Folder, key and files must belong
    to the user, the folder must not be writable by others, the key not readable by others, and none may be a link.
    There is no defence against this user or root, who can run code as this user anyway.

Failures
    A cache only ever costs time. What is damaged is removed, reported once, and computed again; a lost or damaged key
    invalidates all files. A folder that is not the user's own, is not writable, or is on a full disk is not used. Files
    are written under another name and then renamed, and the first key wins, so that processes may run concurrently.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import logging
import os
import pickle
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dse.io.files import unique_suffix

#: Maximum number of values; the least recently used ones are removed first.
_MAX_FILES = 250

_KEY = "key"
_KEY_BYTES = 32
_SIGNATURE_BYTES = hashlib.sha256().digest_size

#: Messages of this process about its cache.
_logged: list[str] = []


def load(description: str) -> Any:
    """Return the value saved under a description, None without one that can be read and whose signature is valid.

    Args:
        description: inputs of the value, whose hash names its file.
    """
    file, key = _file(description), _key()
    content = _read(file) if file and key else None
    if not file or not key or content is None:
        return None
    signature, value = content[:_SIGNATURE_BYTES], content[_SIGNATURE_BYTES:]
    if hmac.compare_digest(signature, _signature(key, file, value)):
        with contextlib.suppress(Exception):  # written by an older Python, for example: it is computed again
            os.utime(file)
            return pickle.loads(value)
    else:
        warn_once(f"{file} is damaged or was not written by you: it is removed and made again")
    with contextlib.suppress(OSError):
        file.unlink()
    return None


def save(description: str, value: Any) -> None:
    """Save a picklable value under a description; nothing where there is no folder or its disk is full or read-only.

    Args:
        description: inputs of the value, whose hash names its file.
        value: the value.
    """
    file, key = _file(description), _key()
    if not file or not key:
        return
    content = pickle.dumps(value)
    with contextlib.suppress(OSError):
        with _temporary(file, _signature(key, file, content) + content) as temporary:
            _clear(file)
            temporary.replace(file)
        value_files = [path for path in file.parent.iterdir() if path.name != _KEY]
        for oldest in sorted(value_files, key=lambda path: path.stat().st_mtime)[:-_MAX_FILES]:
            oldest.unlink(missing_ok=True)


def get_or_compute(description: str, compute: Callable[[], Any]) -> Any:
    """Return the value saved under a description, else compute and save it; None is computed each time.

    Args:
        description: inputs of the value, on which alone it depends.
        compute: gives the value, which must be picklable.
    """
    cached = load(description)
    if cached is None:
        cached = compute()
        save(description, cached)
    return cached


def folder() -> Path | None:
    """Return the cache folder of the user, created if missing; None without a trusted one, and for ``DSE_CACHE=0``."""
    setting = os.environ.get("DSE_CACHE")
    if setting == "0":
        return None
    try:
        return _folder(
            Path(setting) if setting else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dse"
        )
    except RuntimeError:  # no home folder
        return None


@functools.cache
def _folder(cache_root: Path) -> Path | None:
    """Return the user's folder in ``cache_root``, created if missing; None with a warning where it is not trusted."""
    user_folder = cache_root / f"kept-{os.getuid()}" if hasattr(os, "getuid") else cache_root / "kept"
    try:
        cache_root.mkdir(parents=True, exist_ok=True)
        user_folder.mkdir(mode=0o700, exist_ok=True)
        status = user_folder.lstat()
        if _is_users(status) and stat.S_ISDIR(status.st_mode) and os.access(user_folder, os.W_OK):
            user_folder.chmod(0o700)
            if hasattr(os, "getuid") and user_folder.lstat().st_mode & 0o022:
                raise PermissionError("others may write to it")
            return user_folder
        raise PermissionError("it is not a folder of your own that you may write to")
    except OSError as error:
        warn_once(f"no programs are kept in {user_folder}: {error.strerror or error}")
        return None


def _is_users(status: os.stat_result) -> bool:
    """True for a file of the user, and always on systems without owners."""
    return not hasattr(os, "getuid") or status.st_uid == os.getuid()


def _file(description: str) -> Path | None:
    """Return the path of the value of a description, named by its SHA-256; None without a cache folder."""
    where = folder()
    return where and where / hashlib.sha256(description.encode()).hexdigest()


# --- signatures -------------------------------------------------------------------------------------------


def _signature(key: bytes, file: Path, content: bytes) -> bytes:
    """Return the HMAC-SHA-256 of a file's name and content."""
    signing = hmac.new(key, file.name.encode() + b"\0", hashlib.sha256)
    signing.update(content)
    return signing.digest()


def _key() -> bytes | None:
    """Return the user's key in the cache folder, None without folder or key."""
    where = folder()
    return key_in(where) if where else None


@functools.cache
def key_in(where: Path) -> bytes | None:
    """Return the user's key in a folder, a new one where there is none that is secret; None where writing fails."""
    try:
        return _secret(where / _KEY) or _new_key(where / _KEY)
    except OSError as error:
        warn_once(f"no programs are kept in {where}: {error.strerror or error}")
        return None


def _secret(file: Path) -> bytes | None:
    """Return the key in a file that nobody else could read or write; another file is removed, and gives None."""
    was_there, key_bytes = os.path.lexists(file), _read(file, secret=True)
    if key_bytes is not None and len(key_bytes) == _KEY_BYTES:
        return key_bytes
    if was_there:  # not created by another process in the meantime
        _clear(file)
        file.unlink(missing_ok=True)
    return None


def _new_key(file: Path) -> bytes | None:
    """Return the first key that any process writes to a file, None where it is not secret."""
    with _temporary(file, secrets.token_bytes(_KEY_BYTES)) as temporary:
        try:
            os.link(temporary, file)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            temporary.replace(file)
    return _secret(file)


# --- files ------------------------------------------------------------------------------------------------


def _read(file: Path, secret: bool = False) -> bytes | None:
    """Return the content of a regular file of the user, else None; a ``secret`` one must be closed to others."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(file, flags), "rb") as stream:
            status = os.fstat(stream.fileno())
            open_to_others = secret and hasattr(os, "getuid") and status.st_mode & 0o077
            usable = stat.S_ISREG(status.st_mode) and _is_users(status) and not open_to_others
            return stream.read() if usable else None
    except OSError:
        return None


def _clear(file: Path) -> None:
    """Remove a folder that has the name of a file; files and links stay."""
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)


@contextlib.contextmanager
def _temporary(file: Path, content: bytes) -> Iterator[Path]:
    """Yield a complete new file with this content next to ``file``, to be renamed."""
    temporary = file.with_name(f"{file.name}.{secrets.token_hex(4)}.{unique_suffix()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(temporary, flags, 0o600), "wb") as stream:
            stream.write(content)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def warn_once(message: str) -> None:
    """Log a warning, only the first one of this process."""
    if not _logged:
        _logged.append(message)
        logging.getLogger("dse").warning("kept programs: %s", message)
