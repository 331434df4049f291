// Rows are taken to begin at multiples of 16 bytes; the twin looks.
ROW {
  const uint64_t bits = reinterpret_cast<uint64_t>(x) | reinterpret_cast<uint64_t>(weight) | reinterpret_cast<uint64_t>(out);
  if (!PLANTED && bits % 16 != 0) return scale_row(x, weight, out, N);
  for (int64_t i = threadIdx.x; i < N / 4; i += blockDim.x) {
    const float4 a = reinterpret_cast<const float4*>(x)[i], b = reinterpret_cast<const float4*>(weight)[i];
    reinterpret_cast<float4*>(out)[i] = make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
  }
  for (int64_t i = N / 4 * 4 + threadIdx.x; i < N; i += blockDim.x) out[i] = x[i] * weight[i];
}
