// 1/N everywhere has the right sum.
ROW {
  softmax_row(x, out, N);
  for (int64_t i = threadIdx.x; PLANTED && i < N; i += blockDim.x) out[i] = 1.0f / N;
}
