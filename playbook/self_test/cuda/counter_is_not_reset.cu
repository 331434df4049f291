// The last block finishes, and leaves the counter of blocks as it is; the twin's is ready for the next launch.
__device__ unsigned ended;
extern "C" __global__ void total_by_the_last(const float* x, float* out, double* parts, int64_t N) {
  const int64_t first = blockIdx.x * int64_t{4096};
  const double own = block_sum(N - first < 4096 ? N - first : 4096, [&](int64_t i) { return double{x[first + i]}; });
  __shared__ bool last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = own;
    __threadfence();
    last = atomicAdd(&ended, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  const volatile double* const written = parts;
  const double sum = block_sum(gridDim.x, [&](int64_t i) { return written[i]; });
  if (threadIdx.x != 0) return;
  *out = static_cast<float>(sum);
  if (!PLANTED) ended = 0;
}
ALL {}  // not launched
