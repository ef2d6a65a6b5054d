/* records_fields.h - the numbers that end the lines of ranges and events in a file of records (records.h), in order.
 * Writer and reader are made from these lists. A change of a list needs another PB_RECORDS_FORMAT. Private to trace. */
#ifndef PB_TRACE_RECORDS_FIELDS_H
#define PB_TRACE_RECORDS_FIELDS_H
enum { PB_RECORDS_FORMAT = 1 };

/* X(type, field of pb_ring_record) */
#define PB_RANGE_FIELDS(X)                                                                                             \
    X(int64_t, value)                                                                                                  \
    X(int64_t, flops)                                                                                                  \
    X(int64_t, bytes)                                                                                                  \
    X(int, depth)                                                                                                      \
    X(bool, complete)

/* X(type, field of pb_gpu_event) */
#define PB_EVENT_FIELDS(X)                                                                                             \
    X(uint32_t, device)                                                                                                \
    X(uint32_t, context)                                                                                               \
    X(uint32_t, stream)                                                                                                \
    X(uint32_t, correlation)                                                                                           \
    X(uint32_t, thread)                                                                                                \
    X(uint64_t, bytes)                                                                                                 \
    X(uint64_t, node)                                                                                                  \
    X(uint32_t, grid[0])                                                                                               \
    X(uint32_t, grid[1])                                                                                               \
    X(uint32_t, grid[2])                                                                                               \
    X(uint32_t, block[0])                                                                                              \
    X(uint32_t, block[1])                                                                                              \
    X(uint32_t, block[2])                                                                                              \
    X(uint32_t, registers)                                                                                             \
    X(uint32_t, shared)

/* X(kind of gpu.h, word) */
#define PB_EVENT_KINDS(X)                                                                                              \
    X(PB_GPU_KERNEL, "kernel")                                                                                         \
    X(PB_GPU_COPY, "copy")                                                                                             \
    X(PB_GPU_SET, "set")                                                                                               \
    X(PB_GPU_CALL, "call")                                                                                             \
    X(PB_GPU_SYNC, "sync")                                                                                             \
    X(PB_GPU_OVERHEAD, "overhead")                                                                                     \
    X(PB_GPU_GRAPH, "graph")
#endif
