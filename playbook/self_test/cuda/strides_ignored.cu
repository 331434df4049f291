// Rows are taken to lie side by side.
ROW { scale_row(PLANTED ? x - block * (x_row - N) : x, weight, out, N); }
