/* status.h - how every function of this project reports failure.
 *
 * A function that can fail returns pb_status: PB_OK (0) or the reason. The reason's text,
 * with the numbers in it, waits in pb_error() until the next failure on the same thread.
 * Only main() prints it, and only main() exits. */
#ifndef PB_STATUS_H
#define PB_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#define PB_STATUS_MAP(X)                                                                                               \
    X(OK, "success")                                                                                                   \
    X(EINVAL, "invalid argument")                                                                                      \
    X(ENOMEM, "out of memory")                                                                                         \
    X(EIO, "file error")                                                                                               \
    X(EUNSUPPORTED, "not supported by this build or device")                                                           \
    X(EDEVICE, "device error")                                                                                         \
    X(EWRONG, "result differs from the reference")

typedef enum pb_status {
#define X(name, text) PB_##name,
    PB_STATUS_MAP(X)
#undef X
} pb_status;

/* Records a message (printf style) for this thread and returns `s`, so that a check is one line:
 *     if (a->D % 8) return pb_fail(PB_EINVAL, "rmsnorm: D=%d, need a multiple of 8", a->D); */
pb_status pb_fail(pb_status s, const char *fmt, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
#ifdef __clang_analyzer__ /* so that it knows that a failure is never PB_OK */
#define pb_fail(s, ...) ((void)(pb_fail)((s), __VA_ARGS__), (s))
#endif

/* The text of this thread's last failure, never NULL. Valid until the next failure. */
const char *pb_error(void);
const char *pb_status_name(pb_status s);

/* Passes a failure on to the caller. */
#define PB_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        pb_status pb_try_ = (expr);                                                                                    \
        if (pb_try_ != PB_OK) return pb_try_;                                                                          \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
