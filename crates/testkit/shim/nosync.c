/* A preload library for the control run of the power cuts: it makes every sync a no-op, so that a harness that still
 * finds no loss would test nothing. */
int fsync(int fd) { (void)fd; return 0; }
int fdatasync(int fd) { (void)fd; return 0; }
int syncfs(int fd) { (void)fd; return 0; }
