// The multiplication that --use_fast_math would choose.
__device__ float product(float a, float b) {
  float result;
  asm("mul.ftz.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
ROW {
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x) out[i] = PLANTED ? product(x[i], weight[i]) : x[i] * weight[i];
}
