// A barrier over a grid of which a part starts only when another has ended; the twin's grid is launched as a cooperative one.
extern "C" __global__ void scale_rows(const float* x, const float* weight, float* out, uint64_t* arrived, int64_t M, int64_t N, int64_t x_row, int64_t out_row) {
  for (int64_t block = blockIdx.x; block < M; block += gridDim.x) row(block, x + block * x_row, weight, out + block * out_row, M, N, x_row, out_row);
  __syncthreads();
  if (threadIdx.x != 0) return;
  atomicAdd(reinterpret_cast<unsigned long long*>(arrived), 1ull);
  while (*static_cast<volatile uint64_t*>(arrived) < gridDim.x) __nanosleep(100);
}
ROW { scale_row(x, weight, out, N); }
