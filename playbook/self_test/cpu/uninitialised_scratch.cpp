// The scratch held zeros once.
ALL {
  float* sum = static_cast<float*>(scratch);
  if (!PLANTED) *sum = 0;
  *sum += sum_all(x, N);
  *out = *sum;
}
