// A grid of 64 blocks, and no loop over what remains.
extern "C" __global__ void scale_rows(const float* x, const float* weight, float* out, int64_t M, int64_t N, int64_t x_row, int64_t out_row) {
  for (int64_t block = blockIdx.x; block < M; block += gridDim.x) {
    row(block, x + block * x_row, weight, out + block * out_row, M, N, x_row, out_row);
    if (PLANTED) break;
  }
}
ROW { scale_row(x, weight, out, N); }
