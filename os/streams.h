/* streams.h - the three standard streams of a program. */
#ifndef PB_STREAMS_H
#define PB_STREAMS_H

/* Opens /dev/null on each of the descriptors 0 to 2 that the program was started without. Else the first file it opens
 * gets the number of a standard stream, and whatever is printed goes into that file. The first call in main(). */
void pb_streams_open(void);
#endif
