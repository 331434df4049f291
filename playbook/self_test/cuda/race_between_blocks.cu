// Blocks read, add and write without an atomic operation.
extern "C" __global__ void part(const float* x, int64_t* sum, int64_t N) {
  const int64_t first = blockIdx.x * int64_t{256};
  const double own = block_sum(N - first < 256 ? N - first : 256, [&](int64_t i) { return double{x[first + i]}; });
  if (threadIdx.x != 0) return;
  const int64_t fixed = static_cast<int64_t>(own * 0x1p40);
  if (PLANTED) {
    volatile int64_t* const shared = sum;
    *shared = *shared + fixed;
  } else {
    atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(fixed));
  }
}
extern "C" __global__ void finish(const int64_t* sum, float* out) { *out = static_cast<float>(*sum * 0x1p-40); }
ALL {}  // not launched
