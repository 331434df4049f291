// Blocks add their parts of a product to one float as they end; the twin's parts are added in order.
constexpr int parts = 16;
extern "C" __global__ void part(const float* a, const float* b, float* sums, int64_t M, int64_t N, int64_t K) {
  const int64_t row = blockIdx.x, from = blockIdx.y * K / parts, to = (blockIdx.y + 1) * K / parts;
  for (int64_t j = threadIdx.x; j < N; j += blockDim.x) {
    float own = 0;
    for (int64_t k = from; k < to; ++k) own += a[row * K + k] * b[k * N + j];
    if (PLANTED) {
      atomicAdd(sums + row * N + j, own);
    } else {
      sums[(blockIdx.y * M + row) * N + j] = own;
    }
  }
}
extern "C" __global__ void finish(const float* sums, float* out, int64_t M, int64_t N) {
  const int64_t row = blockIdx.x;
  for (int64_t j = threadIdx.x; j < N; j += blockDim.x) {
    float sum = 0;
    for (int p = 0; p < (PLANTED ? 1 : parts); ++p) sum += sums[(p * M + row) * N + j];
    out[row * N + j] = sum;
  }
}
ROW {}  // not launched
