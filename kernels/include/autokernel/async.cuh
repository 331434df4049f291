// Copies that run beside the threads, and launches that overlap. Bulk copies need compute capability 9.0 (`compute_capability >= 90` in a
// plan); below it they trap, and what only orders things does nothing.
#pragma once
#include <autokernel/vec.cuh>

namespace ak {

/// Address of shared memory as instructions take it.
__device__ __forceinline__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// ---- cp.async: 16 bytes a thread -------------------------------------------------------------------------------------

/// Copy 16 aligned bytes of global memory to shared memory; visible to this thread after wait_copies, to others after a barrier then.
/// `through_l1`: other blocks of the multiprocessor copy them, too.
template <bool through_l1 = false>
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
  if constexpr (through_l1) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
  }
}
/// End a group of copies of this thread.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Wait until at most `pending` groups of this thread, the latest, are under way.
template <int pending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/// Arrive at a barrier in shared memory, of which this thread is one arrival, when all its copies so far have come.
__device__ __forceinline__ void arrive_after_copies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// ---- mbarrier and bulk copies: one thread moves a row ----------------------------------------------------------------

/// One thread initialises a barrier in shared memory; then publish_barriers(), then __syncthreads().
__device__ __forceinline__ void init_barrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void publish_barriers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ __forceinline__ void arrive(uint64_t* barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(shared_address(barrier)) : "memory");
}
/// Arrive, and let the phase end only when `bytes` more have come by bulk copies.
__device__ __forceinline__ void arrive_and_expect(uint64_t* barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
#else
  __trap();
#endif
}
/// Wait for the end of a phase: `parity` 0 for the first, 1 for the second, 0 for the third …
__device__ __forceinline__ void wait_for_phase(uint64_t* barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
#else
  __trap();
#endif
}
/// Of `warps` warps that each call it once in a turn, the last one: its lane 0 gets true. What the others read before, they have read.
__device__ __forceinline__ bool last_of_warps(uint32_t* arrived, int warps) {
  __syncwarp();
  if (threadIdx.x % 32 != 0) return false;
  uint32_t before;
  asm volatile("atom.acq_rel.cta.shared::cta.inc.u32 %0, [%1], %2;" : "=r"(before) : "r"(shared_address(arrived)), "r"(warps - 1) : "memory");
  return before == warps - 1;
}
/// Start a copy of `bytes`, a multiple of 16, from aligned global to aligned shared memory, whose end counts on the barrier.
__device__ __forceinline__ void bulk_load(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
#else
  __trap();
#endif
}
/// What threads wrote to shared memory becomes visible to bulk stores: each of them calls it, then a barrier.
__device__ __forceinline__ void publish_shared() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/// Start a copy of `bytes`, a multiple of 16, from aligned shared to aligned global memory, in the thread's current group.
__device__ __forceinline__ void bulk_store(void* global, const void* shared, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared_address(shared)), "r"(bytes) : "memory");
#else
  __trap();
#endif
}
__device__ __forceinline__ void commit_stores() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}
/// Wait until shared memory may be written again, but for the `pending` latest groups of this thread.
template <int pending>
__device__ __forceinline__ void wait_stores_read() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
#endif
}

// ---- overlapping launches (`overlap` in the plan) -------------------------------------------------------------

/// Wait for the launch before this one and its writes. Nothing that it may have written is read, and nothing written, before.
__device__ __forceinline__ void wait_for_previous_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// The next launch may begin once all blocks have said so or ended. Call it after the last load.
__device__ __forceinline__ void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace ak
