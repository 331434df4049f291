// The scratch held zeros once.
extern "C" __global__ void total_in_scratch(const float* x, float* out, float* sum, int64_t N) {
  const float all = sum_all(x, N);
  if (threadIdx.x != 0) return;
  if (!PLANTED) *sum = 0;
  *sum += all;
  *out = *sum;
}
ALL {}  // not launched
