// A row in the registers of a team of threads, in vectors of 16 aligned bytes whatever the address of its first element: the vectors begin at
// the aligned address at or before it, and what is not the row's in the first and the last one is masked.
#pragma once
#include <autokernel/cluster.cuh>
#include <autokernel/reduce.cuh>

#ifndef AK_DIM_N  // compiled for no binding
#define AK_DIM_N 0
#endif

/// Of a kernel that holds rows, in blocks of at most so many threads: the tunable REGISTERS where it is not 0.
#if REGISTERS > 0
#define AK_ROW_LIMITS(threads) __maxnreg__(REGISTERS)
#else
#define AK_ROW_LIMITS(threads) __launch_bounds__(threads)
#endif

namespace ak {

// ---- teams: the threads that hold a row ------------------------------------------------------------------------------
// `thread` is the number of a thread among the `threads` of its team. reduce<Op>(value, neutral) joins values, floats or structures of floats, by
// Op::join, in an order that is always the same; each thread gets the result. All threads of the team call it, and none is past it before
// all have come.

/// `lanes` neighbouring lanes of a warp, a power of two; 0: known at run time. All lanes of the warp call what they call.
template <int lanes = 0>
struct WarpTeam {
  static constexpr int fixed_threads = lanes;
  int thread, threads;

  __device__ __forceinline__ explicit WarpTeam(int group = lanes)
      : thread(static_cast<int>(threadIdx.x) % (lanes > 0 ? lanes : group)), threads(lanes > 0 ? lanes : group) {}
  template <class Op, class V>
  __device__ __forceinline__ V reduce(V value, V) {
    return warp_reduce<Op>(value, lanes > 0 ? lanes : threads);
  }
  /// Whether it holds for some team that must go the same way.
  __device__ __forceinline__ static bool any(bool holds) { return __any_sync(all_lanes, holds); }
};

/// Shared memory of a BlockTeam: two rooms, one of which may still be read.
template <int blocks = 1, int values = 1>
struct Rooms {
  static constexpr int most_floats = 2 * values;  // what is reduced at once are so many values of two floats
  float of_warps[2][32 * most_floats], of_blocks[2][blocks * most_floats];
};

/// A block of `size` threads, a multiple of 32 (0: known at run time), or the `blocks` of a cluster.
template <int size = 0, int blocks = 1, int values = 1>
struct BlockTeam {
  using Shared = Rooms<blocks, values>;
  static constexpr int fixed_threads = size * blocks;
  int thread, threads;

  __device__ __forceinline__ explicit BlockTeam(Rooms<blocks, values>& rooms)
      : thread(static_cast<int>(threadIdx.x)), threads(block_size() * blocks), rooms_(rooms) {
    if constexpr (blocks > 1) {
      thread += cluster_rank() * block_size();
      cluster_arrive();  // all have begun when the first reduction has waited, which each team makes
    }
  }
  template <class Op, class V>
  __device__ __forceinline__ V reduce(V value, V neutral) {
    turn_ ^= 1;
    value = warp_reduce<Op>(value);
    if (block_size() > 32) value = over_warps<Op>(value, neutral);
    if constexpr (blocks > 1) value = over_blocks<Op>(value);
    return value;
  }
  __device__ __forceinline__ static bool any(bool holds) { return holds; }

 private:
  static constexpr int few_warps = 8;  // so few are joined by every thread, and not by a warp
  Rooms<blocks, values>& rooms_;
  int turn_ = 0;
  bool begun_ = blocks == 1;

  __device__ __forceinline__ static int block_size() { return size > 0 ? size : static_cast<int>(blockDim.x); }

  template <class Op, class V>
  __device__ __forceinline__ V over_warps(V value, V neutral) {
    const int lane = threadIdx.x % 32;
    V* const parts = reinterpret_cast<V*>(rooms_.of_warps[turn_]);
    if (lane == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    if constexpr (size > 0 && size <= 32 * few_warps) return join_all<Op, size / 32>(parts);
    if (lane < block_size() / 32) neutral = parts[lane];
    return warp_reduce<Op>(neutral);
  }
  template <class Op, class V>
  __device__ __forceinline__ V over_blocks(V value) {
    V* const parts = reinterpret_cast<V*>(rooms_.of_blocks[turn_]);
    if (!begun_) cluster_wait();
    begun_ = true;
    if (threadIdx.x < blocks) store_to_block(parts + cluster_rank(), static_cast<int>(threadIdx.x), value);
    cluster_sync();
    return join_all<Op, blocks>(parts);
  }
};

/// Shared memory of a PartTeam: two rooms for messages, and the barriers that count what came.
template <int warps>
struct Mailbox {
  float2 messages[2][warps];
  uint64_t barriers[2];
};

/// `blocks` blocks of a cluster, each of `size` threads with a part of a row for itself. Each warp sends its value to each block, and a block
/// waits for these messages alone, not for what else its threads or the others do.
template <int size, int blocks>
struct PartTeam {
  static constexpr int warps = size / 32 * blocks;
  using Shared = Mailbox<warps>;

  /// All threads of the block. A barrier of the block must follow.
  __device__ __forceinline__ explicit PartTeam(Shared& mailbox) : mailbox_(mailbox) {
    if (threadIdx.x == 0) {
      for (uint64_t& barrier : mailbox.barriers) init_barrier(&barrier, 1);
      publish_barriers();
    }
    __syncwarp();
    cluster_arrive();
  }
  /// Whoever sends messages r + 2 into the room of messages r has got all messages r + 1, whose senders had read messages r.
  template <class Op, class V>
  __device__ __forceinline__ V reduce(V value, V neutral) {
    const int lane = threadIdx.x % 32, room = turn_ % 2;
    uint64_t* const barrier = mailbox_.barriers + room;
    V* const parts = reinterpret_cast<V*>(mailbox_.messages[room]);
    value = warp_reduce<Op>(value);
    if (turn_ == 0) cluster_wait();
    if (threadIdx.x == 0) arrive_and_expect(barrier, warps * sizeof(V));
    if (lane < blocks) send_to_block(parts + cluster_rank() * (size / 32) + threadIdx.x / 32, lane, value, barrier);
    wait_for_phase(barrier, turn_ / 2 % 2);
    ++turn_;
    value = lane < warps ? parts[lane] : neutral;
#pragma unroll
    for (int i = 32; i < warps; i += 32) value = Op::join(value, i + lane < warps ? parts[i + lane] : neutral);
    return warp_reduce<Op>(value);
  }

 private:
  Shared& mailbox_;
  uint32_t turn_ = 0;
};
template <int size>
struct PartTeam<size, 1> : BlockTeam<size> {
  using BlockTeam<size>::BlockTeam;
};

template <class Team>
__device__ __forceinline__ float sum(Team& team, float value) {
  return team.template reduce<Sum>(value, 0.0f);
}

/// Join values that lie side by side.
template <class Op>
struct Each {
  template <class V>
  static __device__ __forceinline__ V join(V a, const V& b) {
#pragma unroll
    for (int i = 0; i < V::count; ++i) a.values[i] = Op::join(a.values[i], b.values[i]);
    return a;
  }
};
template <class V, int n>
struct Several {
  static constexpr int count = n;
  V values[n];
};
/// Reduce n values at once, which takes as many barriers as one does.
template <class Op, class Team, class V, int n>
__device__ __forceinline__ void reduce(Team& team, V (&values)[n], const V& neutral) {
  Several<V, n> all, neutrals;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    all.values[i] = values[i];
    neutrals.values[i] = neutral;
  }
  all = team.template reduce<Each<Op>>(all, neutrals);
#pragma unroll
  for (int i = 0; i < n; ++i) values[i] = all.values[i];
}

// ---- places of a row -------------------------------------------------------------------------------------------------

/// Vectors of 16 aligned bytes that a row of so many bytes may touch; rows of whole vectors that are not aligned touch one more.
__device__ constexpr int vectors_touched(int64_t bytes) { return static_cast<int>(bytes / 16 + (bytes % 16 == 0 ? 0 : 2)); }
/// Threads of a block, each with `vectors` of such a row.
__device__ constexpr int threads_for(int64_t bytes, int vectors) { return (vectors_touched(bytes) + 32 * vectors - 1) / (32 * vectors) * 32; }
/// Lanes of a warp, each with `vectors` of such a row: a power of two, above 32 where a warp is not enough.
__device__ constexpr int lanes_for(int64_t bytes, int vectors) {
  int lanes = 1;
  while (lanes <= 32 && lanes * vectors < vectors_touched(bytes)) lanes *= 2;
  return lanes;
}

/// Elements from the aligned address before `p` to it.
template <class E>
__device__ __forceinline__ int elements_skipped(const E* p) {
  return misalignment(p) / int{sizeof(E)};
}

/// All rows of the launch begin at aligned addresses.
template <class E>
__device__ __forceinline__ bool rows_aligned(const E* first, int64_t step) {
  return misalignment(first) == 0 && step % lanes<E> == 0;
}
/// Each row of one tensor begins as far behind an aligned address as that of the other.
template <class E>
__device__ __forceinline__ bool rows_alike(const E* a, int64_t a_step, const E* b, int64_t b_step) {
  return misalignment(a) == misalignment(b) && (a_step - b_step) % lanes<E> == 0;
}

/// K vectors a thread of a row, side by side over the team. Places are elements from the aligned address `skip` before the row.
/// `fixed`: the elements of the row where they are known when compiled. Such a row fits, and begins at an aligned address if it is whole vectors.
/// `own`: of them those of the tile, if it is a part of the row: so many if they are whole vectors, else at least so many.
template <class E, int K, int fixed = 0, int fixed_threads = 0, Hint hint = Hint::none, int own = fixed>
struct Tile {
  using element = E;
  static constexpr int vectors = K, L = lanes<E>;
  static constexpr bool aligned = fixed > 0 && fixed % L == 0;
  static constexpr float share = fixed > 0 ? 1.0f / fixed : 0.0f;  // of an element in a mean over the row
  int thread, threads, begin, end;  // the row is [begin, end) of places

  Tile() = default;
  template <class Team>
  __device__ __forceinline__ Tile(const Team& team, int begin, int end)
      : thread(team.thread), threads(fixed_threads > 0 ? fixed_threads : team.threads), begin(aligned ? 0 : begin), end(aligned ? own : end) {}

  __device__ __forceinline__ int place(int k) const { return (k * threads + thread) * L; }
  /// Vector k of a row whose tile begins at `base`; where the team is known, a constant from that of vector 0.
  template <class Base>
  __device__ __forceinline__ Base* at(Base* base, int k) const {
    return base + thread * L + k * threads * L;
  }
  /// Vector k holds an element of the row.
  __device__ __forceinline__ bool any(int k) const { return ends_before(k) || place(k) < end; }
  /// Vector k holds nothing else.
  __device__ __forceinline__ bool all(int k) const {
    if (aligned) return any(k);
    return (k > 0 || place(k) >= begin) && (ends_before(k) || place(k) + L <= end);
  }
  /// It is known when compiled that vectors k end before the row does.
  __device__ __forceinline__ static constexpr bool ends_before(int k) {
    return fixed > 0 && fixed_threads > 0 && (k + 1) * fixed_threads * L <= own;
  }
  /// Element e of vector k is one of the row.
  __device__ __forceinline__ bool has(int k, int e) const { return begin <= place(k) + e && place(k) + e < end; }

  /// Load the vectors from the aligned `base`, with `fill` where there is no element of the row.
  template <bool shared = false>
  __device__ __forceinline__ void load(uint4 (&v)[K], const E* base, float fill) const {
    const uint4 none = splat<E>(fill);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      v[k] = none;
      if (any(k)) v[k] = load_16<shared ? Hint::none : hint>(at(base, k));
    }
    if constexpr (!aligned) {
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (!all(k)) v[k] = keep_range<E>(v[k], none, begin - place(k), end - place(k));
      }
    }
  }
  /// Load what lies beside the vectors in a row that all rows share, all at once. Only for aligned tiles; `base` is aligned then.
  template <int n>
  __device__ __forceinline__ void load_beside(uint4 (&v)[n], const E* base) const {
#pragma unroll
    for (int k = 0; k < n; ++k) {
      v[k] = make_uint4(0, 0, 0, 0);
      if (any(k)) v[k] = load_16_now(at(base, k));
    }
  }
  /// The elements beside vector k of another row of as many elements, at any address of an element; 0 past the row.
  __device__ __forceinline__ void beside(float (&values)[L], const E* base, int k, bool base_aligned) const {
    if (aligned || (base_aligned && all(k))) {
      unpack<E>(any(k) ? *reinterpret_cast<const uint4*>(base + place(k)) : make_uint4(0, 0, 0, 0), values);
    } else {
#pragma unroll
      for (int e = 0; e < L; ++e) values[e] = has(k, e) ? to_float(base[place(k) + e]) : 0.0f;
    }
  }
  /// Add the elements beside the vectors of another row of as many elements, at any address of an element, rounding each sum. The places
  /// outside the row hold 0, and still do.
  template <bool shared = false>
  __device__ __forceinline__ void add(uint4 (&v)[K], const E* base) const {
    if (shared || aligned || misalignment(base) == 0) {
      uint4 other[K];
      load<shared>(other, base, 0.0f);
#pragma unroll
      for (int k = 0; k < K; ++k) v[k] = add_16<E>(v[k], other[k]);
    } else {
#pragma unroll
      for (int k = 0; k < K; ++k) {
        float values[L], others[L];
        unpack<E>(v[k], values);
        beside(others, base, k, false);
#pragma unroll
        for (int e = 0; e < L; ++e) values[e] += others[e];
        v[k] = pack<E>(values);
      }
    }
  }
  /// Store the vectors to a row of as many elements, at any address of an element.
  __device__ __forceinline__ void store(E* base, const uint4 (&v)[K]) const {
    const bool base_aligned = misalignment(base) == 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float values[L];
      unpack<E>(v[k], values);
      store(base, k, values, base_aligned);
    }
  }
  /// Store vector k to a row of as many elements, at any address of an element, where the row is `present`.
  __device__ __forceinline__ void store(E* base, int k, const float (&values)[L], bool base_aligned, bool present = true) const {
    if (aligned || (base_aligned && all(k))) {
      store_16<hint>(at(base, k), pack<E>(values), present && any(k));
    } else {
#pragma unroll
      for (int e = 0; e < L; ++e) {
        if (present && has(k, e)) base[place(k) + e] = from_float<E>(values[e]);
      }
    }
  }
};

/// A row of any length in pieces, each a Tile of the team.
template <class E, int K, class Team>
struct Pieces {
  using Tile = ak::Tile<E, K>;
  static constexpr int L = lanes<E>;
  const Team& team;
  int64_t step, end;  // places of a piece, and the end of the row
  int skip;
  int count;  // the same for all rows, wherever they begin

  /// `aligned`: all rows of the launch begin at aligned addresses. `N`: of all rows; `present`: whether this one exists.
  __device__ __forceinline__ Pieces(const Team& team, const E* row, int64_t N, bool aligned, bool present = true)
      : team(team), step(int64_t{K} * L * team.threads), skip(elements_skipped(row)) {
    end = present ? N + skip : 0;
    count = static_cast<int>((N + (aligned ? 0 : L - 1) + step - 1) / step);
  }
  __device__ __forceinline__ Tile tile(int piece) const {
    return Tile(team, piece == 0 ? skip : 0, static_cast<int>(max(int64_t{0}, min(end - piece * step, step))));
  }
  /// From the first element of a row to the base of a piece, in elements.
  __device__ __forceinline__ int64_t offset(int piece) const { return piece * step - skip; }
};

// ---- what all rows share ---------------------------------------------------------------------------------------------

/// `count` aligned rows of so many elements, whole vectors, in shared memory, to which the threads of a block copy them once.
template <class E, int elements, int count>
class SharedRows {
 public:
  /// All threads of the block; the copies run beside them. (The arrivals are part of the loop since the assembler moves them, but not a loop,
  /// behind the use of rows that were loaded before.)
  __device__ __forceinline__ void fetch(const E* const (&from)[count]) {
    if (threadIdx.x == 0) init_barrier(&copied_, vectors);
    __syncthreads();
#pragma unroll 1
    for (int begin = 0; begin < vectors; begin += blockDim.x) {
      const int i = begin + threadIdx.x;
      if (i >= vectors) continue;
#pragma unroll
      for (int r = 0; r < count; ++r) copy_async<true>(rows_[r] + i, from[r] + i * lanes<E>);
      arrive_after_copies(&copied_);
    }
  }
  /// Each thread, before it reads them.
  __device__ __forceinline__ void wait() { wait_for_phase(&copied_, 0); }
  /// What lies beside vector k of a tile.
  template <class Tile>
  __device__ __forceinline__ uint4 beside(const Tile& tile, int k, int row) const {
    return tile.any(k) ? rows_[row][tile.place(k) / lanes<E>] : make_uint4(0, 0, 0, 0);
  }

 private:
  static constexpr int vectors = elements / lanes<E>;
  uint4 rows_[count][vectors];
  uint64_t copied_;
};

// ---- rows that come ahead --------------------------------------------------------------------------------------------

/// Rooms of shared memory that bulk copies fill in turn.
template <int stages>
class Ring {
 public:
  /// All threads of the block. `barriers` and `rooms`, each of `room_bytes` and aligned to 16, are shared memory.
  __device__ __forceinline__ Ring(uint64_t (&barriers)[stages], void* rooms, uint32_t room_bytes)
      : barriers_(barriers), rooms_(static_cast<char*>(rooms)), room_bytes_(room_bytes) {
    if (threadIdx.x == 0) {
      for (int s = 0; s < stages; ++s) init_barrier(barriers + s, 1);
      publish_barriers();
    }
    __syncthreads();
  }
  /// One thread: let `bytes`, a multiple of 16, come from an aligned address into the room `ahead` of the present one (`stages` ahead is the
  /// present one, when all have read it), and, where there are `others`, as many from there into its second half.
  __device__ __forceinline__ void fetch(int ahead, const void* from, const void* others, uint32_t bytes) {
    const int room = stage_ + ahead - (stage_ + ahead >= stages ? stages : 0);
    char* const to = rooms_ + room * room_bytes_;
    arrive_and_expect(barriers_ + room, others == nullptr ? bytes : 2 * bytes);
    bulk_load(to, from, bytes, barriers_ + room);
    if (others != nullptr) bulk_load(to + room_bytes_ / 2, others, bytes, barriers_ + room);
  }
  /// What came into the present room.
  template <class E>
  __device__ __forceinline__ const E* wait() const {
    wait_for_phase(barriers_ + stage_, parity_);
    return reinterpret_cast<const E*>(rooms_ + stage_ * room_bytes_);
  }
  __device__ __forceinline__ void next() {
    if (++stage_ < stages) return;
    stage_ = 0;
    parity_ ^= 1;
  }

 private:
  uint64_t* barriers_;
  char* rooms_;
  uint32_t room_bytes_, parity_ = 0;
  int stage_ = 0;
};

// ---- kernels of rows -------------------------------------------------------------------------------------------------
// What a family does with a row is a class `Row`, made of what rows share. It has
//   hint                                      how rows that are held move
//   fill()                                    what stands beside the elements of a row
//   bool aligned() const                      whether what all rows share begins at aligned addresses
//   early(tile) const                         what it loads of what rows share before it is needed, if the tile is aligned
//   held(team, rows, early, released) const   an array of Held; it calls released() when all threads have what they need of the sources
//   any(team, pieces, source, out) const      a row in pieces, from its first element on
// Rows of `known` elements, for which a file is compiled, are held, the compiler knowing all their places; others are taken in pieces.

/// Where a row comes from: x, or x + addend, rounded as it lies in memory, which may have to go to `total`, too.
template <class E, bool adds, bool keeps>
struct Source {
  const E* __restrict__ x;
  const E* __restrict__ addend;
  E* __restrict__ total;

  __device__ __forceinline__ float first() const {
    return adds ? to_float(from_float<E>(to_float(*x) + to_float(*addend))) : to_float(*x);
  }
  /// The vectors of a tile that begins `at` elements from the first one.
  template <class Tile, int K>
  __device__ __forceinline__ void load(const Tile& tile, uint4 (&v)[K], int64_t at, float fill) const {
    tile.load(v, x + at, fill);
    if constexpr (adds) tile.add(v, addend + at);
  }
  /// Write what was loaded where it has to go.
  template <class Tile, int K>
  __device__ __forceinline__ void keep(const Tile& tile, const uint4 (&v)[K], int64_t at) const {
    if constexpr (keeps) tile.store(total + at, v);
  }
};

/// A row, or a piece of one, that lies in the vectors v of a tile.
template <class Tile, class Source>
struct Held {
  using E = typename Tile::element;
  Tile tile;
  Source source;  // has its first element
  E* out;         // the base of the tile in the output
  int64_t at;     // the place of the base in the row, 0 or less for a row
  bool present;   // false for lanes without a row, which take part in reductions only
  uint4 v[Tile::vectors];

  template <int n>
  __device__ __forceinline__ void store(int k, const float (&values)[n], bool aligned) const {
    tile.store(out, k, values, aligned, present);
  }
};

/// Load a piece of the row whose output begins at `out`.
template <class Held, class Pieces>
__device__ __forceinline__ void load_piece(Held& held, const Pieces& pieces, int piece, typename Held::E* out, float fill) {
  held.tile = pieces.tile(piece);
  held.at = pieces.offset(piece);
  held.out = out + held.at;
  held.source.load(held.tile, held.v, held.at, fill);
}

/// The rows of one launch.
template <class E, bool adds_ = false, bool keeps = false>
struct Rows {
  using element = E;
  static constexpr bool adds = adds_;
  const E* __restrict__ x;
  E* __restrict__ out;
  int64_t M, N, x_step, out_step;
  const E* __restrict__ addend = nullptr;
  E* __restrict__ total = nullptr;
  int64_t addend_step = 0, total_step = 0;

  __device__ __forceinline__ const E* input(int64_t row) const { return x + row * x_step; }
  __device__ __forceinline__ const E* added(int64_t row) const { return addend + row * addend_step; }
  __device__ __forceinline__ E* output(int64_t row) const { return out + row * out_step; }
  __device__ __forceinline__ Source<E, adds, keeps> source(int64_t row) const { return {input(row), added(row), total + row * total_step}; }
  /// Whether all have `known` elements and the alignment of a Tile of so many.
  template <int known>
  __device__ __forceinline__ bool are_known(bool others_aligned) const {
    if (known == 0 || N != known) return false;
    if (known % lanes<E> == 0 && !(others_aligned && rows_aligned(x, x_step))) return false;
    return rows_alike(x, x_step, out, out_step) && (!adds || rows_alike(x, x_step, addend, addend_step)) &&
           (!keeps || rows_alike(x, x_step, static_cast<const E*>(total), total_step));
  }
};

constexpr int few_vectors = 1;  // of a piece, so that rows that are held decide the number of registers

template <class Row, class Rows, class Team>
__device__ __forceinline__ void row_in_pieces(Team& team, const Row& what, const Rows& rows, int64_t row, bool present) {
  const Pieces<typename Rows::element, few_vectors, Team> pieces(team, rows.input(row), rows.N, rows_aligned(rows.x, rows.x_step), present);
  what.any(team, pieces, rows.source(row), rows.output(row));
}

/// `count` rows at once: all are loaded before the first is reduced. `exist`: it is known that there are so many.
template <int K, int known, int count, bool exist, class Row, class Rows, class Team>
__device__ __forceinline__ void rows_held(Team& team, const Row& what, const Rows& rows, int64_t first) {
  using E = typename Rows::element;
  Held<Tile<E, K, known, Team::fixed_threads, Row::hint>, decltype(rows.source(0))> held[count];
#pragma unroll
  for (int r = 0; r < count; ++r) {
    auto& row = held[r];
    row.present = exist || first + r < rows.M;
    const int64_t i = exist ? first + r : min(first + r, rows.M - 1);
    const int skip = elements_skipped(rows.input(i));
    row.tile = {team, skip, skip + known};
    row.source = rows.source(i);
    row.at = -int64_t{skip};
    row.out = rows.output(i) - skip;
    row.source.load(row.tile, row.v, row.at, Row::fill());
  }
  const auto early = what.early(held[0].tile);
  __syncwarp();  // what is loaded early is loaded before the reductions
#pragma unroll
  for (const auto& row : held) {
    if (row.present) row.source.keep(row.tile, row.v, row.at);
  }
  what.held(team, held, early, [] { let_next_launch_begin(); });
}

/// `count` rows at once to groups of `lanes` lanes, which have K vectors of a row each.
template <int K, int known, int count, class Row, class Rows>
__device__ __forceinline__ void rows_in_warps(const Row& what, const Rows& rows, int lanes) {
  constexpr int known_lanes = lanes_for(known * sizeof(typename Rows::element), K);
  const bool are_known = known_lanes <= 32 && rows.template are_known<known>(what.aligned());
  // With a number of lanes that is known, a shift and not a division stands before the loads.
  const auto first = [](int group) { return (int64_t{blockIdx.x} * (blockDim.x / group) + threadIdx.x / group) * count; };
  if (are_known) {
    constexpr int group = known_lanes <= 32 ? known_lanes : 1;
    WarpTeam<group> team;
    rows_held<K, known, count, false>(team, what, rows, first(group));
  } else {
    WarpTeam<> team(lanes);
    const int64_t begin = first(lanes), last = rows.M - 1;
    for (int64_t row = begin; row < begin + count; ++row) row_in_pieces(team, what, rows, min(row, last), row <= last);
  }
}

/// `count` rows at once to `blocks` blocks of at most `most` threads, which have K vectors of a row each where it fits.
template <int K, int known, int most, int blocks, int count, class Row, class Rows>
__device__ __forceinline__ void rows_in_blocks(const Row& what, const Rows& rows) {
  constexpr int size = threads_for(known * sizeof(typename Rows::element), K * blocks);
  __shared__ Rooms<blocks, count> rooms;
  const int64_t first = int64_t{blockIdx.x / blocks} * count;
  if (size <= most && rows.template are_known<known>(what.aligned())) {
    BlockTeam<size <= most ? size : 0, blocks, count> team(rooms);
    rows_held<K, known, count, count == 1>(team, what, rows, first);
  } else {
    BlockTeam<0, blocks, count> team(rooms);
    for (int64_t row = first; row < min(first + count, rows.M); ++row) row_in_pieces(team, what, rows, row, true);
  }
}

/// Rows to blocks that stay: while they work on one, `stages` others come. Dynamic shared memory: stages * 16 * vectors_touched bytes, twice as
/// many where a row is added to each.
template <int K, int known, int most, int stages, class Row, class Rows>
__device__ __forceinline__ void rows_ahead(const Row& what, const Rows& rows) {
  using E = typename Rows::element;
  constexpr bool adds = Rows::adds;
  constexpr int size = threads_for(known * sizeof(E), K);
  extern __shared__ uint4 dynamic_shared[];
  __shared__ uint64_t barriers[stages];
  __shared__ Rooms<> rooms;
  const int64_t step = gridDim.x;
  if (!(size <= most && rows.template are_known<known>(what.aligned()))) {
    BlockTeam<> team(rooms);
    for (int64_t row = blockIdx.x; row < rows.M; row += step) row_in_pieces(team, what, rows, row, true);
    return;
  }
  BlockTeam<size <= most ? size : 0> team(rooms);
  constexpr int row_vectors = vectors_touched(known * sizeof(E));
  Ring<stages> ring(barriers, dynamic_shared, (adds ? 32 : 16) * row_vectors);
  const auto fetch = [&](int ahead, int64_t row) {
    if (threadIdx.x != 0 || row >= rows.M) return;
    const int skip = elements_skipped(rows.input(row));
    ring.fetch(ahead, rows.input(row) - skip, adds ? rows.added(row) - skip : nullptr, (skip + known + lanes<E> - 1) / lanes<E> * 16);
  };
#pragma unroll
  for (int s = 0; s < stages; ++s) fetch(s, blockIdx.x + s * step);
  const auto early = what.early(Tile<E, K, known, size>(team, 0, known));
  for (int64_t row = blockIdx.x; row < rows.M; row += step) {
    const int skip = elements_skipped(rows.input(row));
    const E* const base = ring.template wait<E>();
    const E* const added = base + row_vectors * lanes<E>;
    Held<Tile<E, K, known, size, Row::hint>, Source<E, adds, false>> held[1] = {
        {{team, skip, skip + known}, {base + skip, added + skip, nullptr}, rows.output(row) - skip, -int64_t{skip}, true, {}}};
    const auto& tile = held[0].tile;
    tile.template load<true>(held[0].v, base, Row::fill());
    if constexpr (adds) tile.template add<true>(held[0].v, added);
    rows.source(row).keep(tile, held[0].v, held[0].at);
    what.held(team, held, early, [&] { fetch(stages, row + stages * step); });
    ring.next();
  }
}

/// The part of a row of `known` elements that one of `blocks` blocks holds, with at most K vectors a thread. Rows that are not whole vectors are
/// held from the beginning of a line on, so that what a warp stores is whole lines.
template <class E, int known, int K, int blocks>
struct Part {
  static constexpr int line = 128;
  static constexpr int64_t bytes = int64_t{known} * int{sizeof(E)};
  static constexpr bool whole = bytes % 16 == 0;
  static constexpr int64_t unit = whole ? 1 : line / 16, touched = bytes / 16 + (whole ? 0 : unit + 1);
  static constexpr int64_t vectors = (touched + unit * blocks - 1) / (unit * blocks) * unit;
  static constexpr int64_t last = known - (blocks - 1) * vectors * lanes<E>;     // elements at least that are left for the last block
  static constexpr int64_t threads = (vectors + 128 * K - 1) / (128 * K) * 128;  // as many warps to each quarter of a multiprocessor
  static constexpr bool possible = known > 0 && last > 0 && !(whole && touched % blocks != 0);

  /// Elements before a row that is `offset` elements from the first one: which threads hold what of it depends on no address but that one's in 16 bytes.
  __device__ __forceinline__ static int skipped(const E* first, int64_t offset) {
    if (whole) return 0;
    return misalignment(first) == 0 ? static_cast<int>(static_cast<uint32_t>(offset) % (line / sizeof(E))) : elements_skipped(first + offset);
  }
};

/// Rows to clusters of `blocks` blocks that stay: while they work on one, `stages` others come, each block's part for itself. Row::held must need
/// nothing of the source but the vectors: the next part comes as soon as all warps have theirs. Dynamic shared memory: stages * 16 * Part::vectors bytes.
template <int K, int known, int most, int stages, int blocks, class Row, class Rows>
__device__ __forceinline__ void parts_ahead(const Row& what, const Rows& rows) {
  using E = typename Rows::element;
  using Part = ak::Part<E, known, K, blocks>;
  const int64_t first = blockIdx.x / blocks, step = gridDim.x / blocks;
  if constexpr (Part::possible && Part::threads <= most) {
    if (rows.template are_known<known>(what.aligned())) {
      extern __shared__ uint4 dynamic_shared[];
      __shared__ uint64_t barriers[stages];
      __shared__ uint32_t readers;
      constexpr int size = Part::threads, elements = Part::vectors * lanes<E>;
      __shared__ typename PartTeam<size, blocks>::Shared shared;
      if (threadIdx.x == 0) readers = 0;
      PartTeam<size, blocks> team(shared);
      Ring<stages> ring(barriers, dynamic_shared, 16 * Part::vectors);
      const int before = blocks == 1 ? 0 : cluster_rank() * elements;
      const auto fetch = [&](int ahead, int64_t row) {
        if (row >= rows.M) return;
        const E* const begin = rows.input(row);
        const int at = before - Part::skipped(rows.x, row * rows.x_step);
        ring.fetch(ahead, begin + at, nullptr, (min(elements, known - at) + lanes<E> - 1) / lanes<E> * 16);
      };
      if (threadIdx.x == 0) {
#pragma unroll
        for (int s = 0; s < stages; ++s) fetch(s, first + s * step);
      }
      using Tile = ak::Tile<E, (Part::vectors + size - 1) / size, known, size, Row::hint, Part::last>;
      const struct {
        int thread, threads;
      } place = {static_cast<int>(threadIdx.x), size};
      for (int64_t row = first; row < rows.M; row += step) {
        const int at = before - Part::skipped(rows.x, row * rows.x_step);
        const E* const base = ring.template wait<E>();
        Held<Tile, Source<E, false, false>> held[1] = {
            {{place, max(0, -at), min(elements, known - at)}, {base - at, nullptr, nullptr}, rows.output(row) + at, at, true, {}}};
        const Tile& tile = held[0].tile;
        tile.template load<true>(held[0].v, base, Row::fill());
        if (last_of_warps(&readers, size / 32)) fetch(stages, row + stages * step);
        what.held(team, held, what.early(tile), [] {});
        ring.next();
      }
      return;
    }
  }
  __shared__ Rooms<blocks> rooms;
  BlockTeam<0, blocks> team(rooms);
  for (int64_t row = first; row < rows.M; row += step) row_in_pieces(team, what, rows, row, true);
}

}  // namespace ak
