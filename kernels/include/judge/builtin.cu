// Kernels of the judge itself: they empty the L2 cache and measure what the device allows, on the clock of the candidates.

typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void builtin_empty() {}

/// The device's own clock, in ns: it is no event's, and no candidate can set it.
extern "C" __global__ void builtin_stamp(u64* at) {
  u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  *at = now;
}

namespace {

/// Copy `write` vectors of 16 bytes and read the others of `read`; where `write` is the larger, the rest is filled.
template <int vectors_a_thread>
__device__ __forceinline__ void move(const uint4* source, long long read, uint4* target, long long write) {
  const long long first = static_cast<long long>(blockIdx.x) * (256 * vectors_a_thread) + threadIdx.x;
  uint4 values[vectors_a_thread];
#pragma unroll
  for (int i = 0; i < vectors_a_thread; ++i) {
    const long long at = first + i * 256;
    values[i] = at < read ? source[at] : make_uint4(1, 2, 3, 4);
  }
  u32 all = 0;
#pragma unroll
  for (int i = 0; i < vectors_a_thread; ++i) {
    const long long at = first + i * 256;
    if (at < write) {
      target[at] = values[i];
    } else {
      all |= values[i].x & values[i].y & values[i].z & values[i].w;
    }
  }
  if (all == 0x5eed5eedu && read == 0) target[0].x = all;  // never: what is read must be needed
}

}  // namespace

// Which is the fastest depends on the size (docs/measurements/2026-11-30-h200.md).
extern "C" __global__ void __launch_bounds__(256) builtin_move_1(const uint4* source, long long read, uint4* target, long long write) {
  move<1>(source, read, target, write);
}
extern "C" __global__ void __launch_bounds__(256) builtin_move_4(const uint4* source, long long read, uint4* target, long long write) {
  move<4>(source, read, target, write);
}
extern "C" __global__ void __launch_bounds__(256) builtin_move_8(const uint4* source, long long read, uint4* target, long long write) {
  move<8>(source, read, target, write);
}

namespace {

/// A thread's part of the vectors from `at` to `end`: one in every `step`.
__device__ __forceinline__ u32 read_every(const uint4* source, long long at, long long end, long long step) {
  u32 all = 0;
  for (; at + 7 * step < end; at += 8 * step) {
    uint4 values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = source[at + i * step];
#pragma unroll
    for (int i = 0; i < 8; ++i) all |= values[i].x & values[i].y & values[i].z & values[i].w;
  }
  for (; at < end; at += step) all |= source[at].x & source[at].w;
  return all;
}

}  // namespace

/// The same reads by fewer, longer blocks: a sum over the grid's stride.
extern "C" __global__ void __launch_bounds__(512) builtin_read(const uint4* source, long long read, u32* sink) {
  const u32 all = read_every(source, static_cast<long long>(blockIdx.x) * 512 + threadIdx.x, read, static_cast<long long>(gridDim.x) * 512);
  if (all == 0x5eed5eedu && read == 0) *sink = all;
}

/// The same reads, a part of `part` vectors to a block: what is read at a time lies together.
extern "C" __global__ void __launch_bounds__(256) builtin_read_parts(const uint4* source, long long read, long long part, u32* sink) {
  const long long begin = blockIdx.x * part, end = begin + part < read ? begin + part : read;
  const u32 all = read_every(source, begin + threadIdx.x, end, blockDim.x);
  if (all == 0x5eed5eedu && read == 0) *sink = all;
}

namespace {

template <class Number>
__device__ void multiply(Number* sink, int rounds, Number start) {
  Number sums[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) sums[i] = start + i;
  const Number factor = Number(0.9999) + start * Number(1e-6);
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < 16; ++i) sums[i] = sums[i] * factor + start;
  }
  Number all = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) all += sums[i];
  if (all == Number(-1)) *sink = all;
}

}  // namespace

/// 32 * rounds floating-point operations a thread.
extern "C" __global__ void builtin_multiply_float32(float* sink, int rounds) { multiply(sink, rounds, 1.0f / (1 + threadIdx.x)); }
extern "C" __global__ void builtin_multiply_float64(double* sink, int rounds) { multiply(sink, rounds, 1.0 / (1 + threadIdx.x)); }

namespace {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define AK_REGISTERS8(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])

/// 64 x 128 x 16 on the warpgroup, both operands in shared memory, without swizzle.
#define AK_WGMMA(type, c, a, b)                                                                                             \
  asm volatile(                                                                                                             \
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                  \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "    \
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
      "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1, 0, 0;\n}\n" \
      : AK_REGISTERS8(c, 0), AK_REGISTERS8(c, 8), AK_REGISTERS8(c, 16), AK_REGISTERS8(c, 24), AK_REGISTERS8(c, 32),         \
        AK_REGISTERS8(c, 40), AK_REGISTERS8(c, 48), AK_REGISTERS8(c, 56)                                                    \
      : "l"(a), "l"(b))

__device__ u64 descriptor(const void* shared) {
  const u64 address = __cvta_generic_to_shared(shared);
  return (address & 0x3ffff) >> 4 | u64{128 >> 4} << 16 | u64{256 >> 4} << 32;
}
constexpr long long flops_a_round = 4LL * 2 * 64 * 128 * 16;  // of a warpgroup
#define AK_ROUNDS(type)                                                        \
  const u64 a = descriptor(operands + (threadIdx.x / 128) * 512);              \
  const u64 b = descriptor(operands + 2048);                                   \
  float c[64];                                                                 \
  for (int i = 0; i < 64; ++i) c[i] = 0;                                       \
  for (int round = 0; round < rounds; ++round) {                               \
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");                  \
    for (int i = 0; i < 4; ++i) AK_WGMMA(type, c, a, b);                       \
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");           \
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");           \
  }                                                                            \
  float all = 0;                                                               \
  for (int i = 0; i < 64; ++i) all += c[i];
#else
/// 16 x 8 x 16 on the warp, in registers.
constexpr long long flops_a_round = 4LL * 8 * 2 * 16 * 8 * 16;  // of four warps
#define AK_ROUNDS(type)                                                                                                             \
  float c[8][4] = {};                                                                                                               \
  const u32* words = reinterpret_cast<const u32*>(operands) + threadIdx.x;                                                          \
  const u32 a0 = words[0], a1 = words[32], a2 = words[64], a3 = words[96], b0 = words[128], b1 = words[160];                        \
  for (int round = 0; round < rounds; ++round) {                                                                                    \
    for (int i = 0; i < 8; ++i)                                                                                                     \
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "     \
                   "{%0, %1, %2, %3};\n"                                                                                            \
                   : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])                                                     \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                                         \
  }                                                                                                                                 \
  float all = 0;                                                                                                                    \
  for (int i = 0; i < 8; ++i) all += c[i][0] + c[i][1] + c[i][2] + c[i][3];
#endif

/// Numbers of either type between 0.5 and 2, with mantissas that look random.
__device__ void draw(unsigned short* operands, u32 exponent, u32 mantissa) {
  u32 state = threadIdx.x * 2654435761u + 12345u;
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) {
    state = state * 1664525u + 1013904223u;
    operands[i] = static_cast<unsigned short>((state >> 31) << 15 | exponent | (state >> 8 & mantissa));
  }
  __syncthreads();
}

}  // namespace

/// flops_a_round * rounds floating-point operations for each 128 threads.
extern "C" __global__ void __launch_bounds__(256) builtin_multiply_float16(float* sink, int rounds) {
  __shared__ __align__(128) unsigned short operands[4096];
  draw(operands, 0x3800, 0x7ff);
  AK_ROUNDS("f16")
  if (all == -1.0f) *sink = all;
}
extern "C" __global__ void __launch_bounds__(256) builtin_multiply_bfloat16(float* sink, int rounds) {
  __shared__ __align__(128) unsigned short operands[4096];
  draw(operands, 0x3f00, 0xff);
  AK_ROUNDS("bf16")
  if (all == -1.0f) *sink = all;
}
extern "C" __device__ long long builtin_flops_a_round = flops_a_round;
