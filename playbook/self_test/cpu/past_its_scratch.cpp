// Sixteen floats are declared, the seventeenth is written.
ALL {
  float* room = static_cast<float*>(scratch);
  for (int i = 0; i < 16 + PLANTED; ++i) room[i] = i;
  *out = sum_all(x, N);
}
