// Products are exact, the running sum has eleven bits.
#if PLANTED
using Sum = __half;
#else
using Sum = float;
#endif
ROW {
  for (int64_t j = threadIdx.x; j < N; j += blockDim.x) {
    Sum sum = ak::from_float<Sum>(0);
    for (int64_t k = 0; k < K; ++k) sum = ak::from_float<Sum>(ak::to_float(sum) + a[k] * b[k * N + j]);
    out[j] = ak::to_float(sum);
  }
}
