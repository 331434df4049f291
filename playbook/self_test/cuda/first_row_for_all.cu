// Every row is computed from the first one.
ROW { scale_row(PLANTED ? x - block * x_row : x, weight, out, N); }
