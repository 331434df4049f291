// Boxes of a tensor by bulk copies. A plan's [tensormap.NAME] is a kernel's parameter `const __grid_constant__ ak::TensorMap NAME`.
// Compute capability 9.0; below it all of this traps: a plan must choose another kernel there.
#pragma once
#include <autokernel/async.cuh>

namespace ak {

/// A descriptor as the driver made it: tensor, box, swizzle.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

/// Have the descriptor at hand for the first copy.
__device__ __forceinline__ void prefetch(const TensorMap& map) {
#if __CUDA_ARCH__ >= 900
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#endif
}

/// Start a copy of the box that begins at this element into shared memory at a multiple of 128 bytes (of 1024 where it is swizzled by 128);
/// its end counts on the barrier with the bytes of the whole box. What lies outside the tensor comes as zeros.
__device__ __forceinline__ void load_box(void* shared, const TensorMap& map, uint64_t* barrier, int row, int column) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
                   shared_address(shared)),
               "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row)
               : "memory");
#else
  __trap();
#endif
}
__device__ __forceinline__ void load_box(void* shared, const TensorMap& map, uint64_t* barrier, int plane, int row, int column) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
                   shared_address(shared)),
               "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(plane)
               : "memory");
#else
  __trap();
#endif
}

/// Start a copy of a box from shared memory after publish_shared(), in the thread's current group of bulk stores. What lies outside the
/// tensor is not written.
__device__ __forceinline__ void store_box(const TensorMap& map, const void* shared, int row, int column) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map), "r"(shared_address(shared)),
               "r"(column), "r"(row)
               : "memory");
#else
  __trap();
#endif
}
__device__ __forceinline__ void store_box(const TensorMap& map, const void* shared, int plane, int row, int column) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map), "r"(shared_address(shared)),
               "r"(column), "r"(row), "r"(plane)
               : "memory");
#else
  __trap();
#endif
}

}  // namespace ak
