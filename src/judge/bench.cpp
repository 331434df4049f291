// Layout of the arena, the program with addresses, and the guards around a launch.
#include "judge/bench.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "core/error.h"
#include "core/hash.h"
#include "judge/comparison.h"
#include "judge/parallel.h"

namespace ak::judge {

namespace {

constexpr int64_t zone_bytes = 16 << 10;  // of canary between two buffers, at least
constexpr int64_t page_bytes = 4096, line_bytes = 64, places = 64;
constexpr int64_t least_changes = 16, most_changes = 4096, elements_a_change = 64;  // so that no row of a matrix stays as it was
constexpr int64_t least_nudged = 1 << 18;                                           // elements
constexpr double nudges_a_us = 250;   // about a quarter of a launch's time, and as much to undo it
constexpr int64_t late_changes = 16;  // of a tensor
constexpr int64_t samples_per_output = 64, many_samples = 1024;
constexpr std::chrono::microseconds later(500);

int64_t align(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

/// A worker's part of a per-worker scratch, with a line of canary behind it.
int64_t worker_stride(int64_t bytes) { return align(bytes, line_bytes) + line_bytes; }

int64_t element_at(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, int64_t linear) {
  int64_t offset = 0;
  for (size_t dim = shape.size(); dim-- > 0;) {
    offset += linear % shape[dim] * strides[dim];
    linear /= shape[dim];
  }
  return offset;
}

Finding written_after_its_end() {
  return {Verdict::cheating, {{"message", "an output changed after the end of the launch"}}, "writing after its end"};
}

int mantissa_bits(Dtype dtype) {
  switch (dtype) {
    case Dtype::float64: return 52;
    case Dtype::float32: return 23;
    case Dtype::float16: return 10;
    default: return 7;
  }
}

/// Other last bits, half of the mantissa, in `count` numbers from some place on; those that are 0, denormal, infinite or NaN stay.
template <class Bits>
void nudge_values(std::span<std::byte> tensor, int mantissa_bits, int64_t count, uint64_t seed) {
  const Bits low = static_cast<Bits>((Bits{1} << (mantissa_bits / 2)) - 1);
  const Bits exponent = static_cast<Bits>((~Bits{0} >> 1) & ~((Bits{1} << mantissa_bits) - 1));
  const auto values = static_cast<int64_t>(tensor.size() / sizeof(Bits));
  if (values == 0) return;
  const auto first = static_cast<int64_t>(seed % static_cast<uint64_t>(values));
  count = std::min(count, values);
  const auto nudge = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::byte* at = tensor.data() + i * static_cast<int64_t>(sizeof(Bits));
      Bits bits = 0;
      std::memcpy(&bits, at, sizeof bits);
      const uint64_t mixed = (seed + static_cast<uint64_t>(i)) * 0x9e3779b97f4a7c15u;
      const bool usual = (bits & exponent) != 0 && (bits & exponent) != exponent;
      bits = static_cast<Bits>(bits ^ (usual ? low & static_cast<Bits>(mixed >> 37) : 0));
      std::memcpy(at, &bits, sizeof bits);
    }
  };
  nudge(first, std::min(first + count, values));
  nudge(0, std::max<int64_t>(0, first + count - values));
}

// ---- large memory ----

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  in_parallel(static_cast<int64_t>(from.size()), bytes_a_thread,
              [&](int64_t begin, int64_t end) { std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin)); });
}

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  std::atomic<bool> equal = true;
  in_parallel(static_cast<int64_t>(a.size()), bytes_a_thread, [&](int64_t begin, int64_t end) {
    if (std::memcmp(a.data() + begin, b.data() + begin, static_cast<size_t>(end - begin)) != 0) equal = false;
  });
  return equal;
}

/// Of the hashes of pieces, whatever the number of threads.
std::string hash_of(std::span<const std::byte> bytes) {
  const auto pieces = static_cast<int64_t>((bytes.size() + bytes_a_thread - 1) / bytes_a_thread);
  std::vector<std::string> hashes(static_cast<size_t>(pieces));
  in_parallel(pieces, 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const auto piece = bytes.subspan(i * bytes_a_thread, std::min<size_t>(bytes_a_thread, bytes.size() - i * bytes_a_thread));
      hashes[i] = content_hash({reinterpret_cast<const char*>(piece.data()), piece.size()});
    }
  });
  std::string all;
  for (const std::string& hash : hashes) all += hash;
  return content_hash(all);
}

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

}  // namespace

Bench::Bench(device::Host& host, const CaseData& data, kernel::ConcretePlan plan) : host_(host), data_(data), plan_(std::move(plan)) {}

void Bench::lay_out(uint64_t seed, int64_t alignment) {
  buffers_.clear();
  for (size_t i = 0; i < data_.inputs().size(); ++i) {
    const InputTensor& input = data_.inputs()[i];
    buffers_.push_back(
        {Kind::input, input.name, 0, static_cast<int64_t>(input.storage.size()), input.offset * size_bytes(input.dtype), i, false});
  }
  for (size_t i = 0; i < data_.outputs().size(); ++i) {
    const OutputTensor& output = data_.outputs()[i];
    const int64_t size = size_bytes(output.dtype);
    buffers_.push_back({Kind::output, output.name, 0, (output.offset + output.span_elements()) * size, output.offset * size, i, false});
  }
  for (size_t i = 0; i < plan_.scratch.size(); ++i) {
    const kernel::ConcreteScratch& scratch = plan_.scratch[i];
    const int64_t bytes = scratch.per_worker ? host_.workers() * worker_stride(scratch.bytes) : scratch.bytes;
    buffers_.push_back({Kind::scratch, scratch.name, 0, bytes, 0, i, touch_scratch(plan_, plan_.prepares, scratch.name)});
  }
  std::mt19937_64 random(seed);
  int64_t at = 0;
  for (Buffer& each : buffers_) {
    each.begin = align(at + zone_bytes, page_bytes) + alignment * static_cast<int64_t>(random() % places);
    if (each.kind == Kind::scratch) each.begin = align(each.begin, plan_.scratch[each.index].alignment);
    each.pointer += each.begin;
    at = each.begin + each.bytes;
  }
  total_bytes_ = align(at + zone_bytes, page_bytes);
}

/// A weight that was prepared stays as it is.
bool Bench::changes_between_launches(const Buffer& buffer) const {
  return data_.inputs()[buffer.index].role != kernel::Role::weight || plan_.prepares.empty();
}

std::vector<const Bench::Buffer*> Bench::changing_inputs() const {
  std::vector<const Buffer*> changing;
  for (const Buffer& each : buffers_) {
    if (each.kind == Kind::input && changes_between_launches(each) && count_of(data_.inputs()[each.index].shape) > 0)
      changing.push_back(&each);
  }
  return changing;
}

bool Bench::hidden_from_prepares(const Buffer& buffer) const {
  return buffer.kind == Kind::input && !plan_.prepares.empty() && data_.inputs()[buffer.index].role != kernel::Role::weight;
}

void Bench::fill() {
  int64_t at = 0;
  const auto fill_gap = [&](int64_t end) { canary_.fill(arena_.subspan(static_cast<size_t>(at), static_cast<size_t>(end - at)), at); };
  for (const Buffer& each : buffers_) {
    fill_gap(each.begin);
    at = each.begin + each.bytes;
    if (each.kind == Kind::input && !hidden_from_prepares(each)) {
      copy(data_.inputs()[each.index].storage, bytes_of(each));
    } else if (each.kind == Kind::scratch && plan_.scratch[each.index].zeroed && !plan_.scratch[each.index].per_worker) {
      std::ranges::fill(bytes_of(each), std::byte{0});
    } else {
      poison_of(each.kind).fill(bytes_of(each), each.begin);
    }
  }
  fill_gap(total_bytes_);
}

/// errors: none; it is the candidate's own wish.
std::optional<Finding> Bench::excessive_scratch() const {
  const int64_t most = host_.most_scratch_bytes();
  int64_t left = most;
  for (const kernel::ConcreteScratch& scratch : plan_.scratch) {
    const int64_t parts = scratch.per_worker ? host_.workers() : 1;
    if (scratch.bytes > left / parts)
      return Finding{Verdict::out_of_memory, {{"message", "more than " + std::to_string(most >> 20) + " MiB of scratch"}}, {}};
    left -= parts * scratch.bytes;
  }
  return std::nullopt;
}

bool Bench::allocates_coarsely() const { return host_.alignment() > line_bytes; }

std::optional<Finding> Bench::place(uint64_t seed, Addresses addresses) {
  if (auto finding = excessive_scratch()) return finding;
  poison_ = Poison(seed ^ 0x5eedULL);
  turn_ = turn_ ? *turn_ + 1 : seed % 3;
  canary_ = Poison(seed ^ 0xca9a5ULL, static_cast<Poison::Kind>(*turn_ % 3));
  sample_seed_ = seed;
  changes_.clear();
  late_changes_.clear();
  nudged_ = 0;
  lay_out(seed, addresses == Addresses::any ? line_bytes : host_.alignment());
  arena_ = host_.arena(total_bytes_);
  fill();
  host_.push(0, total_bytes_);
  const device::Outcome installed = host_.install(plan_, placement());
  if (!installed.ok()) return finding_of(installed);
  if (plan_.prepares.empty()) return std::nullopt;
  const device::Outcome prepared = host_.prepare(timeout_seconds_);
  if (!prepared.ok()) return finding_of(prepared);
  return hand_over_data();
}

/// What a prepare had not to see: it could tell a launch whose data were perturbed since from one whose values are compared.
std::optional<Finding> Bench::hand_over_data() {
  for (const Buffer& each : buffers_) {
    if (!hidden_from_prepares(each)) continue;
    host_.pull(each.begin, each.bytes);
    if (canary_.first_changed(bytes_of(each), each.begin) >= 0)
      return Finding{Verdict::out_of_bounds, {{"tensor", each.name}, {"message", "a prepare wrote to " + each.name}}, {}};
    copy(data_.inputs()[each.index].storage, bytes_of(each));
    host_.push(each.begin, each.bytes);
  }
  return std::nullopt;
}

device::Placement Bench::placement() const {
  device::Placement result;
  for (const Buffer& each : buffers_) {
    result.pointers[each.name] = each.pointer;
    if (each.kind != Kind::input && !each.kept && each.bytes > 0) result.written.emplace_back(each.begin, each.bytes);
    if (each.kind != Kind::scratch) continue;
    const kernel::ConcreteScratch& scratch = plan_.scratch[each.index];
    if (scratch.per_worker) {
      result.worker_scratch = each.begin;
      result.worker_stride = worker_stride(scratch.bytes);
    }
    if (each.kept || !scratch.zeroed) continue;
    const int64_t parts = scratch.per_worker ? host_.workers() : 1;
    for (int64_t part = 0; part < parts; ++part) result.zeros.emplace_back(each.begin + part * worker_stride(scratch.bytes), scratch.bytes);
  }
  return result;
}

void Bench::poison_outputs() {
  for (const Buffer& each : buffers_) {
    if (each.kind != Kind::output && (each.kind != Kind::scratch || each.kept)) continue;
    poison_of(each.kind).fill(bytes_of(each), each.begin);
    host_.push(each.begin, each.bytes);
  }
}

Bench::Change Bench::draw_change(const Buffer& buffer, const InputTensor& input, std::mt19937_64& random) const {
  const auto count = static_cast<uint64_t>(count_of(input.shape));
  const int64_t size = size_bytes(input.dtype);
  const auto somewhere = [&] {
    return buffer.pointer + element_at(input.shape, input.strides, static_cast<int64_t>(random() % count)) * size;
  };
  Change change{somewhere(), -1, static_cast<int32_t>(size), 0};
  if (is_floating(input.dtype)) {
    uint64_t bits = 0;
    std::memcpy(&bits, arena_.data() + change.at, static_cast<size_t>(size));
    const uint64_t mantissa = (uint64_t{1} << mantissa_bits(input.dtype)) - 1, sign = uint64_t{1} << (8 * size - 1);
    const uint64_t exponent = bits & ~mantissa & ~sign, largest = (sign - 1) & ~mantissa;
    change.flipped = random() & mantissa;
    if (exponent != 0 && exponent != largest && change.flipped != 0) return change;  // neither 0 nor denormal, infinite or NaN
  }
  change.other = somewhere();
  return change;
}

void Bench::apply(const Change& change) {
  std::byte* at = arena_.data() + change.at;
  host_.push(change.at, change.size);
  if (change.other >= 0) {
    std::swap_ranges(at, at + change.size, arena_.data() + change.other);
    host_.push(change.other, change.size);
    return;
  }
  uint64_t bits = 0;
  std::memcpy(&bits, at, static_cast<size_t>(change.size));
  bits ^= change.flipped;
  std::memcpy(at, &bits, static_cast<size_t>(change.size));
}

int64_t Bench::affordable_nudges() const {
  return host_.shares_memory() ? std::max(least_nudged, static_cast<int64_t>(last_us_ * nudges_a_us)) : 0;
}

/// Made twice, it is none, since it leaves signs and exponents alone.
void Bench::nudge() {
  for (const Buffer* each : changing_inputs()) {
    const Dtype dtype = data_.inputs()[each->index].dtype;
    if (!is_floating(dtype)) continue;
    const auto tensor = bytes_of(*each).subspan(static_cast<size_t>(each->pointer - each->begin));
    switch (dtype) {
      case Dtype::float64: nudge_values<uint64_t>(tensor, 52, nudged_, nudge_seed_); break;
      case Dtype::float32: nudge_values<uint32_t>(tensor, 23, nudged_, nudge_seed_); break;
      case Dtype::float16: nudge_values<uint16_t>(tensor, 10, nudged_, nudge_seed_); break;
      default: nudge_values<uint16_t>(tensor, 7, nudged_, nudge_seed_);
    }
  }
}

void Bench::perturb(const Perturbation& perturbation) {
  AK_CHECK(changes_.empty() && nudged_ == 0, "inputs are perturbed once, then restored");
  std::mt19937_64 random(perturbation.seed);
  nudge_seed_ = random();
  nudged_ = perturbation.nudged;
  nudge();
  const std::vector<const Buffer*> changing = changing_inputs();
  for (const Buffer* each : changing) {
    const InputTensor& input = data_.inputs()[each->index];
    for (int64_t i = std::clamp(count_of(input.shape) / elements_a_change, least_changes, most_changes); i > 0; --i) {
      changes_.push_back(draw_change(*each, input, random));
      apply(changes_.back());
    }
    for (int64_t i = 0; i < late_changes; ++i) late_changes_.push_back(draw_change(*each, input, random));
  }
  if (perturbation.few == 0 || changing.empty()) return;
  random.seed(perturbation.few_seed);
  const Buffer& one = *changing[random() % changing.size()];
  for (int64_t i = 0; i < perturbation.few; ++i) late_changes_.push_back(draw_change(one, data_.inputs()[one.index], random));
}

/// A change made twice is none.
void Bench::restore() {
  for (auto change = changes_.rbegin(); change != changes_.rend(); ++change) apply(*change);
  nudge();
  changes_.clear();
  late_changes_.clear();
  nudged_ = 0;
}

void Bench::sample_outputs(Look look) {
  samples_.clear();
  if (look != Look::few) pull_outputs();
  std::mt19937_64 random(++sample_seed_);
  for (const Buffer& each : buffers_) {
    if (each.kind != Kind::output) continue;
    const OutputTensor& output = data_.outputs()[each.index];
    const int64_t count = output.elements(), size = size_bytes(output.dtype);
    for (int64_t i = 0; i < std::min(count, look == Look::few ? samples_per_output : many_samples); ++i) {
      const int64_t element = element_at(output.shape, output.strides, static_cast<int64_t>(random() % static_cast<uint64_t>(count)));
      Sample sample{each.pointer + element * size, static_cast<int32_t>(size), 0};
      if (look == Look::few) host_.pull(sample.at, size);
      std::memcpy(&sample.bits, arena_.data() + sample.at, static_cast<size_t>(size));
      samples_.push_back(sample);
    }
  }
}

std::optional<Finding> Bench::launch(int workers, Look look, int repeats, const std::function<void()>& while_stopped) {
  const auto change_late = [this](int repeat, int of) {  // a part of them before each repeat
    const auto place = [&](int part) { return static_cast<size_t>(part) * late_changes_.size() / static_cast<size_t>(of); };
    for (size_t i = place(repeat); i < place(repeat + 1); ++i) {
      apply(late_changes_[i]);
      changes_.push_back(late_changes_[i]);
    }
    if (repeat + 1 == of) late_changes_.clear();
  };
  const auto at_end = [&] {
    sample_outputs(look);
    if (while_stopped) host_.stop();  // what it has not done by now, it will not have done
    hash_at_end_ = look == Look::few && !while_stopped ? std::string() : outputs_hash();
    if (while_stopped) host_.resume();
  };
  const device::Outcome outcome = host_.launch(
      workers, timeout_seconds_,
      {.at_start = change_late, .at_end = at_end, .while_stopped = while_stopped, .awake = look == Look::all_at_once, .repeats = repeats});
  last_us_ = outcome.us;
  last_second_us_ = outcome.second_us;
  last_waited_us_ = outcome.waited_us;
  last_outside_us_ = outcome.outside_us;
  if (outcome.ok()) return std::nullopt;
  Finding finding = finding_of(outcome);
  if (finding.verdict == Verdict::timed_out) finding.evidence["message"] = "no end after " + std::to_string(timeout_seconds_) + " s";
  return finding;
}

std::optional<Finding> Bench::check_finished() const {
  for (const Sample& sample : samples_) host_.pull(sample.at, sample.size);
  const bool changed = std::ranges::any_of(samples_, [&](const Sample& sample) {
    return std::memcmp(&sample.bits, arena_.data() + sample.at, static_cast<size_t>(sample.size)) != 0;
  });
  return changed ? std::optional(written_after_its_end()) : std::nullopt;
}

std::optional<Finding> Bench::check_finished_later() const {
  std::this_thread::sleep_for(later);
  if (!hash_at_end_.empty() && outputs_hash() != hash_at_end_) return written_after_its_end();
  return check_finished();
}

std::optional<Finding> Bench::changed_canary() const {
  int64_t at = 0;
  const Buffer* before = nullptr;
  const auto check = [&](int64_t end, const Buffer* behind) -> std::optional<Finding> {
    const int64_t changed = canary_.first_changed(arena_.subspan(static_cast<size_t>(at), static_cast<size_t>(end - at)), at);
    if (changed < 0) return std::nullopt;
    std::string name, place;
    if (before != nullptr && (behind == nullptr || changed < (end - at) / 2)) {
      name = before->name;
      place = std::to_string(changed) + " bytes past the end of ";
    } else if (behind != nullptr) {
      name = behind->name;
      place = std::to_string(end - at - changed) + " bytes before the start of ";
    }
    return Finding{Verdict::out_of_bounds, {{"tensor", name}, {"message", "wrote " + place + name}}, {}};
  };
  for (const Buffer& each : buffers_) {
    if (auto finding = check(each.begin, &each)) return finding;
    at = each.begin + each.bytes;
    before = &each;
  }
  return check(total_bytes_, nullptr);
}

/// The elements between an output's rows, and the parts between workers' scratch, are canaries too.
std::optional<Finding> Bench::changed_gap(const Buffer& buffer) const {
  const auto bytes = bytes_of(buffer);
  const auto outside = [&](int64_t from, int64_t count) {
    return poison_of(buffer.kind)
               .first_changed(bytes.subspan(static_cast<size_t>(from), static_cast<size_t>(count)), buffer.begin + from) >= 0;
  };
  bool changed = false;
  if (buffer.kind == Kind::scratch && plan_.scratch[buffer.index].per_worker) {
    const int64_t part = plan_.scratch[buffer.index].bytes, stride = worker_stride(part);
    for (int64_t worker = 0; worker < host_.workers(); ++worker) changed = changed || outside(worker * stride + part, stride - part);
  } else if (buffer.kind == Kind::output) {
    const OutputTensor& output = data_.outputs()[buffer.index];
    const int64_t size = size_bytes(output.dtype);
    changed = outside(0, output.offset * size);
    if (output.span_elements() != output.elements()) {
      std::vector<bool> covered(static_cast<size_t>(output.span_elements()), false);
      for_each_element(output.shape, output.strides, [&](int64_t, int64_t offset) { covered[static_cast<size_t>(offset)] = true; });
      for (size_t i = 0; i < covered.size(); ++i)
        changed = changed || (!covered[i] && outside((output.offset + static_cast<int64_t>(i)) * size, size));
    }
  }
  if (!changed) return std::nullopt;
  return Finding{Verdict::out_of_bounds, {{"tensor", buffer.name}, {"message", "wrote between the parts of " + buffer.name}}, {}};
}

std::optional<Finding> Bench::check_memory() {
  host_.pull(0, total_bytes_);
  restore();
  if (auto finding = changed_canary()) return finding;
  for (const Buffer& each : buffers_) {
    if (each.kind != Kind::input) {
      if (auto finding = changed_gap(each)) return finding;
      continue;
    }
    if (!equal(data_.inputs()[each.index].storage, bytes_of(each))) return Finding{Verdict::changed_input, {{"tensor", each.name}}, {}};
  }
  return std::nullopt;
}

std::optional<Finding> Bench::check_values() const {
  for (const Buffer& each : buffers_) {
    if (each.kind != Kind::output) continue;
    if (auto finding = compare(data_.outputs()[each.index], arena_.data() + each.pointer, data_.tolerance_k(), &poison_, each.pointer))
      return finding;
  }
  return std::nullopt;
}

void Bench::pull_outputs() const {
  for (const Buffer& each : buffers_) {
    if (each.kind == Kind::output) host_.pull(each.begin, each.bytes);
  }
}

std::string Bench::outputs_hash() const {
  pull_outputs();
  std::string all;
  for (const Buffer& each : buffers_) {
    if (each.kind != Kind::output) continue;
    const OutputTensor& output = data_.outputs()[each.index];
    const int64_t size = size_bytes(output.dtype);
    const std::byte* data = arena_.data() + each.pointer;
    const auto bytes = static_cast<size_t>(output.elements() * size);
    if (output.span_elements() == output.elements()) {  // no gaps, in whatever order
      all += hash_of({data, bytes});
      continue;
    }
    std::vector<std::byte> dense(bytes);
    for_each_element(output.shape, output.strides, [&](int64_t linear, int64_t offset) {
      std::memcpy(dense.data() + linear * size, data + offset * size, static_cast<size_t>(size));
    });
    all += hash_of(dense);
  }
  return all;
}

}  // namespace ak::judge
