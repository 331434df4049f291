// Sixteen floats are declared, the seventeenth is written.
extern "C" __global__ void total_in_scratch(const float* x, float* out, float* room, int64_t N) {
  const float all = sum_all(x, N);
  if (threadIdx.x < 16 + PLANTED) room[threadIdx.x] = threadIdx.x;
  if (threadIdx.x == 0) *out = all;
}
ALL {}  // not launched
