// Blocks of a cluster (`cluster` in the plan), which write into each other's shared memory; compute capability 9.0. Below it the functions
// trap: a plan must not choose a cluster there.
#pragma once
#include <autokernel/async.cuh>

namespace ak {

__device__ __forceinline__ int cluster_rank() {
  uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return static_cast<int>(rank);
}

/// The two halves of a barrier of all threads of the cluster. What a thread wrote before it arrived, here or in shared memory of another
/// block, is visible to those who have waited. A block may touch another's shared memory only after a first barrier, since before it the
/// other may not have begun, and may end only when no other touches its own.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
  __trap();
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __trap();
#endif
}
__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

/// Write a float to the place of `p` in the shared memory of block `rank`.
__device__ __forceinline__ void store_to_block(float* p, int rank, float value) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.f32 [there], %2; }" ::"r"(shared_address(p)),
      "r"(rank), "f"(value)
      : "memory");
#else
  __trap();
#endif
}
/// The same for a structure of floats.
template <class V>
__device__ __forceinline__ void store_to_block(V* p, int rank, const V& value) {
#pragma unroll
  for (int i = 0; i < int{sizeof(V) / sizeof(float)}; ++i)
    store_to_block(reinterpret_cast<float*>(p) + i, rank, reinterpret_cast<const float*>(&value)[i]);
}
/// The same for a structure of two floats, which comes later and then counts as 8 bytes on the barrier at the place of `barrier` there.
template <class V>
__device__ __forceinline__ void send_to_block(V* p, int rank, const V& value, uint64_t* barrier) {
  static_assert(sizeof(V) == 2 * sizeof(float));
  const float* const floats = reinterpret_cast<const float*>(&value);
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .b32 there, barrier;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mapa.shared::cluster.u32 barrier, %4, %1;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%2, %3}, [barrier]; }" ::"r"(shared_address(p)),
      "r"(rank), "f"(floats[0]), "f"(floats[1]), "r"(shared_address(barrier))
      : "memory");
#else
  __trap();
#endif
}

}  // namespace ak
