def claims():
    yield from ()
