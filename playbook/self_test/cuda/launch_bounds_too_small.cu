// Compiled for half of the threads that the plan gives.
extern "C" __global__ void __launch_bounds__(PLANTED ? 64 : 128) scale_rows(const float* x, const float* weight, float* out, int64_t M, int64_t N, int64_t x_row, int64_t out_row) {
  const int64_t block = blockIdx.x;
  row(block, x + block * x_row, weight, out + block * out_row, M, N, x_row, out_row);
}
ROW { scale_row(x, weight, out, N); }
