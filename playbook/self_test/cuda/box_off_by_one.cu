#include <autokernel/tensor_map.cuh>

// Boxes of 8 rows and 32 columns, the planted ones taken a row further on.
extern "C" __global__ void scale_boxes(const __grid_constant__ ak::TensorMap boxes, const float* weight, float* out, int64_t M, int64_t N,
                                       int64_t out_row) {
  __shared__ __align__(128) float box[8][32];
  __shared__ uint64_t barrier;
  const int row = blockIdx.x * 8, column = blockIdx.y * 32;
  if (threadIdx.x == 0) {
    ak::init_barrier(&barrier, 1);
    ak::publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    ak::arrive_and_expect(&barrier, sizeof box);
    ak::load_box(box, boxes, &barrier, row + PLANTED, column);
  }
  ak::wait_for_phase(&barrier, 0);
  const int i = threadIdx.x / 32, j = threadIdx.x % 32;
  if (row + i < M && column + j < N) out[(row + i) * out_row + column + j] = box[i][j] * weight[column + j];
}

ROW { scale_row(x, weight, out, N); }
