// More than a block can have; the twin has as many.
ROW { scale_row(x, weight, out, N); }
