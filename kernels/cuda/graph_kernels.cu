/* graph_kernels.cu - implements graph_kernels.h with the driver's calls, because the runtime does not know the kernels
 * that libraries launch. */
#include <cuda.h>
#include <stdlib.h>

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/graph_kernels.h"

struct driver {
    CUresult (*params)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2 *);
    CUresult (*function)(CUfunction *, CUkernel);
    CUresult (*attribute)(int *, CUfunction_attribute, CUfunction);
};

static pb_status find(const char *name, void **out)
{
    cudaDriverEntryPointQueryResult found;
    PB_CUDA_TRY(cudaGetDriverEntryPointByVersion(name, out, 12000, cudaEnableDefault, &found));
    if (found == cudaDriverEntryPointSuccess) return PB_OK;
    return pb_fail(PB_EUNSUPPORTED, "cuda: the driver lacks %s; update the driver", name);
}

static pb_status open_driver(driver *d)
{
    PB_TRY(find("cuGraphKernelNodeGetParams", (void **)&d->params));
    PB_TRY(find("cuKernelGetFunction", (void **)&d->function));
    return find("cuFuncGetAttribute", (void **)&d->attribute);
}

static pb_status add_kernel(const driver *d, cudaGraphNode_t node, pb_kernel_resources *out)
{
    CUDA_KERNEL_NODE_PARAMS_v2 p = {};
    int registers = 0, local = 0;
    CUresult r = d->params(node, &p);
    if (r == CUDA_SUCCESS && !p.func) r = d->function(&p.func, p.kern);
    if (r == CUDA_SUCCESS) r = d->attribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, p.func);
    if (r == CUDA_SUCCESS) r = d->attribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, p.func);
    if (r != CUDA_SUCCESS)
        return pb_fail(PB_EUNSUPPORTED, "cuda: the driver does not tell what a recorded kernel takes: error %d",
                       (int)r);
    out->kernels++;
    if (registers > out->registers) out->registers = registers;
    if ((size_t)local > out->local_bytes) out->local_bytes = (size_t)local;
    return PB_OK;
}

static pb_status add_kernels(const cudaGraphNode_t *node, size_t n, pb_kernel_resources *out)
{
    driver d;
    PB_TRY(open_driver(&d));
    for (size_t i = 0; i < n; i++) {
        cudaGraphNodeType type;
        PB_CUDA_TRY(cudaGraphNodeGetType(node[i], &type));
        if (type == cudaGraphNodeTypeKernel) PB_TRY(add_kernel(&d, node[i], out));
    }
    return PB_OK;
}

pb_status pb_graph_kernels(cudaGraph_t graph, pb_kernel_resources *out)
{
    size_t n = 0;
    PB_CUDA_TRY(cudaGraphGetNodes(graph, NULL, &n));
    cudaGraphNode_t *node = (cudaGraphNode_t *)malloc((n + 1) * sizeof *node);
    if (!node) return pb_fail(PB_ENOMEM, "cuda: no memory for the list of %zu nodes", n);
    const cudaError_t e = n ? cudaGraphGetNodes(graph, node, &n) : cudaSuccess;
    const pb_status s = e == cudaSuccess ? add_kernels(node, n, out) : pb_cuda_failed(e, "cudaGraphGetNodes");
    free(node);
    return s;
}
