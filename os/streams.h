/* streams.h - what a program sets right about its files before anything else: the three standard streams. */
#ifndef PB_STREAMS_H
#define PB_STREAMS_H

/* Opens /dev/null on each of the descriptors 0 to 2 that the program was started without. Else the first file it opens
 * gets the number of a standard stream, and whatever is printed goes into that file. Also makes a write beyond the
 * limit on the size of files (ulimit -f) fail, where by default it kills the process. The first call in main(). */
void pb_streams_open(void);
#endif
