/* status.h - how every function of this project reports failure.
 *
 * A function that can fail returns pb_status: PB_OK (0) or the kind of failure. pb_error() returns the message, with
 * control characters replaced; it stays valid until the next failure on the same thread. Only main() prints messages,
 * and only main() exits, with the exit code from the table below. */
#ifndef PB_STATUS_H
#define PB_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(status, exit code, meaning). Exit code 2: the user's arguments or files are wrong. Exit code 125: the machine
 * failed, or the build lacks the feature; `git bisect run` skips a revision that exits with 125. */
#define PB_STATUS_MAP(X)                                                                                               \
    X(OK, 0, "success")                                                                                                \
    X(EINVAL, 2, "invalid argument or file contents")                                                                  \
    X(EFORMAT, 2, "a file asks for something that this program does not support")                                      \
    X(EPATH, 2, "a path that cannot be used: missing, not permitted, or of the wrong kind")                            \
    X(ENOMEM, 125, "out of memory")                                                                                    \
    X(EIO, 125, "the operating system failed: disk full, input or output error, too many open files")                  \
    X(EUNSUPPORTED, 125, "not supported by this build or device")                                                      \
    X(EDEVICE, 125, "device error")                                                                                    \
    X(EWRONG, 1, "result differs from the reference")

typedef enum pb_status {
#define X(name, code, text) PB_##name,
    PB_STATUS_MAP(X)
#undef X
} pb_status;

/* Records a printf-style message for this thread and returns `s`, so that a check needs one line:
 *     if (a->D % 8) return pb_fail(PB_EINVAL, "rmsnorm: D=%d, need a multiple of 8", a->D); */
pb_status pb_fail(pb_status s, const char *fmt, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
/* Reports a system call on a path that failed with errno value `error`. The message is followed by ": " and
 * strerror(error). Returns EPATH if another path or permission would help, else EIO. */
pb_status pb_fail_errno(int error, const char *fmt, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
#ifdef __clang_analyzer__ /* tells the static analyser that pb_fail never returns PB_OK */
#define pb_fail(s, ...)       ((void)(pb_fail)((s), __VA_ARGS__), (s))
#define pb_fail_errno(e, ...) ((void)(pb_fail_errno)((e), __VA_ARGS__), PB_EIO)
#endif

/* The message of this thread's last failure; never NULL. */
const char *pb_error(void);
const char *pb_status_name(pb_status s);
int pb_status_exit(pb_status s); /* exit code of a program that ends with status s */

/* Returns from the calling function if `expr` fails. */
#define PB_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        pb_status pb_try_ = (expr);                                                                                    \
        if (pb_try_ != PB_OK) return pb_try_;                                                                          \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
