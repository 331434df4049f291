// What the late half of the block has yet to write is read; the twin waits for it.
ROW {
  __shared__ float room[128];
  for (int64_t first = 0; first < N; first += 128) {
    room[threadIdx.x] = 0;
    __syncthreads();
    const long long start = clock64();
    while (threadIdx.x >= 64 && clock64() - start < 4000) {
    }
    const int64_t from = first + threadIdx.x, to = first + 127 - threadIdx.x;
    if (from < N) room[threadIdx.x] = x[from] * weight[from];
#if !PLANTED
    __syncthreads();
#endif
    if (to < N) out[to] = room[127 - threadIdx.x];
    __syncthreads();
  }
}
