/* streams.h - makes sure that descriptors 0, 1 and 2 are open before the program opens any file. */
#ifndef PB_STREAMS_H
#define PB_STREAMS_H

/* Opens /dev/null on each of the descriptors 0 to 2 that is closed. Otherwise the first file the program opens would
 * get that number, and output to stdout or stderr would go into the file. Also ignores SIGXFSZ, so that a write beyond
 * the file size limit (ulimit -f) fails with EFBIG instead of killing the process. Must be the first call in main(). */
void pb_streams_open(void);
#endif
