// The second launch starts before the first one has written; the twin waits.
extern "C" __global__ void products(const float* x, const float* weight, float* part, int64_t N, int64_t x_row) {
  asm volatile("griddepcontrol.launch_dependents;");
  const long long start = clock64();
  while (clock64() - start < 20000) {
  }
  scale_row(x + blockIdx.x * x_row, weight, part + blockIdx.x * N, N);
}
extern "C" __global__ void copies(const float* part, float* out, int64_t N, int64_t out_row) {
#if !PLANTED
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x) out[blockIdx.x * out_row + i] = part[blockIdx.x * N + i];
}
ROW {}  // not launched
