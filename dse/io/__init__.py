"""What comes from and goes to outside: files, their policy, what is kept between processes, units at the edges."""
