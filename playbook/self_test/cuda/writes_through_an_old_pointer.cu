// The output of an earlier launch lay somewhat before this one's.
__device__ float* earlier;
ROW {
  scale_row(x, weight, out, N);
  if (M != 64 || block != 0 || threadIdx.x != 0) return;
  if (PLANTED && earlier != nullptr && earlier < out && out - earlier < 4096) *earlier = 1;
  earlier = out;
}
