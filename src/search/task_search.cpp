// One experiment after another on one task.
#include "search/task_search.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"

namespace ak::search {
namespace {

/// Mean over the workload's calls.
double mean_over_calls(const kernel::Task& task, const Expression& expression) {
  double sum = 0, calls = 0;
  for (const kernel::Binding& binding : task.workload) {
    sum += static_cast<double>(expression.evaluate(task.names(binding))) * static_cast<double>(binding.calls);
    calls += static_cast<double>(binding.calls);
  }
  return calls > 0 ? sum / calls : 0;
}

constexpr size_t candidates_ahead = 12;
constexpr double bound_share = 0.6;  // of a ceiling: below, it is not what holds a kernel back
constexpr size_t starts_from_elsewhere = 3;
constexpr double other_dtype_distance = 1;  // as far as twice the size

/// How far two tasks of a family are apart: doublings of their dims.
double distance(const kernel::Task& left, const kernel::Task& right) {
  double doublings = left.dtype == right.dtype ? 0 : other_dtype_distance;
  const auto& other = right.workload.front().dims;
  for (const auto& [name, extent] : left.workload.front().dims) {
    const auto found = other.find(name);
    if (found != other.end())
      doublings += std::abs(std::log2((static_cast<double>(extent) + 1) / (static_cast<double>(found->second) + 1)));
  }
  return doublings;
}

double ratio(double numerator, double denominator) { return denominator > 0 ? numerator / denominator : 0; }

double memory_us(const kernel::Task& task, const Ceilings& ceilings) {
  const bool only_read = kernel::traffic(task, task.workload.front()).is_read_only();
  return 1e6 * ratio(mean_over_calls(task, task.bytes), only_read ? ceilings.read_bytes_per_second : ceilings.bytes_per_second);
}

}  // namespace

Rate rate_of(const kernel::Task& task, const Ceilings& ceilings, double us) {
  if (us <= 0) return {};
  return {mean_over_calls(task, task.flops) / us * 1e-6, 100 * roofline_us(task, ceilings) / us};
}

double arithmetic_us(const kernel::Task& task, const Ceilings& ceilings) {
  const auto peak = ceilings.flops_per_second.find(task.dtype);
  return peak == ceilings.flops_per_second.end() ? 0 : 1e6 * ratio(mean_over_calls(task, task.flops), peak->second);
}

double roofline_us(const kernel::Task& task, const Ceilings& ceilings) {
  return std::max(arithmetic_us(task, ceilings), memory_us(task, ceilings));
}

std::string bound_of(const kernel::Task& task, const Ceilings& ceilings, size_t launches, double us) {
  const double roofline = roofline_us(task, ceilings);
  if (roofline <= 0 || us <= 0) return {};
  const bool idle = roofline < bound_share * us || roofline < ceilings.launch_us * static_cast<double>(launches);
  if (idle) return "latency";
  return arithmetic_us(task, ceilings) > memory_us(task, ceilings) ? "compute" : "memory";
}

const Step& BenchResult::result() const {
  const auto kept = std::find_if(steps.rbegin(), steps.rend(), [](const Step& step) { return step.kept(); });
  return kept == steps.rend() ? steps.front() : *kept;
}

TaskSearch::TaskSearch(store::Run& run, judge::Judge& judge, const std::string& task, Settings settings)
    : run_(run),
      judge_(judge),
      task_(run.task(task)),
      settings_(std::move(settings)),
      proposer_(make_proposer(settings_.strategy, settings_.seed ^ std::stoull(short_hash(task, 16), nullptr, 16))) {
  kernel::KernelFile file = kernel::KernelFile::read(run_.best_path(task));
  if (run_.state(task).incumbent) incumbent_ = judge::Candidate{file, file.defaults()};
  look_at(std::move(file));
}

void TaskSearch::look_at(kernel::KernelFile file) {
  space_ = std::make_unique<Space>(std::move(file), task_, settings_.device_facts, settings_.highest_tier);
  history_ = std::make_unique<History>(*space_, run_.state(task_.id).trials, winners_elsewhere());
}

/// The incumbents of the run's other tasks of this family that are points of this space, the nearest shapes first.
std::vector<kernel::Point> TaskSearch::winners_elsewhere() const {
  std::vector<std::pair<double, kernel::Point>> found;
  for (const std::string& id : run_.task_ids()) {
    const store::TaskState& state = run_.state(id);
    if (id == task_.id || state.family != task_.family || !state.incumbent || !space_->allows(state.incumbent->point)) continue;
    found.emplace_back(distance(task_, run_.task(id)), state.incumbent->point);
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& left, const auto& right) { return left.first < right.first; });
  std::vector<kernel::Point> points;
  for (auto& [far, point] : found) {
    if (points.size() < starts_from_elsewhere && std::find(points.begin(), points.end(), point) == points.end())
      points.push_back(std::move(point));
  }
  return points;
}

std::optional<Proposal> TaskSearch::propose() { return proposer_->next(*history_); }

/// Most candidates lose: what would be proposed if this one did, and the next ones.
void TaskSearch::announce_what_follows(const Proposal& proposal) const {
  History imagined = *history_;
  std::vector<judge::Candidate> likely;
  std::optional<Proposal> last = proposal;
  while (last && !last->kernel_text && likely.size() < candidates_ahead) {
    store::Trial lost;
    lost.point = last->point;
    lost.verdict = judge::name_of(judge::Verdict::does_not_fit);  // and so no new centre
    lost.kernel_hash = kernel_hash(space_->file(), last->point);
    imagined.add(lost);
    last = proposer_->next(imagined);
    if (last) likely.push_back({space_->file(), last->point});
  }
  judge_.expect(likely);
}

Step TaskSearch::run(const Proposal& proposal) {
  announce_what_follows(proposal);
  const judge::Candidate candidate{
      proposal.kernel_text ? kernel::KernelFile::parse(*proposal.kernel_text, "the proposed kernel") : space_->file(), proposal.point};
  Step step{proposal, judge_twice(candidate), std::nullopt};
  if (step.judgement.verdict == judge::Verdict::failed_environment) return step;
  const std::string text = candidate.file.with_defaults(candidate.point);
  store::Trial trial = make_trial(proposal, step.judgement, candidate);
  trial.experiment = run_.record(trial, text);
  history_->add(trial);
  step.trial = std::move(trial);
  if (step.kept()) {
    incumbent_ = judge::Candidate{candidate.file, candidate.point};
    if (proposal.kernel_text) look_at(candidate.file);
  }
  return step;
}

judge::Judgement TaskSearch::judge_twice(const judge::Candidate& candidate) {
  const judge::Candidate* incumbent = incumbent_ ? &*incumbent_ : nullptr;
  judge::Judgement judgement = judge_.judge(candidate, incumbent);
  return judgement.verdict == judge::Verdict::failed_environment ? judge_.judge(candidate, incumbent) : judgement;
}

store::Trial TaskSearch::make_trial(const Proposal& proposal, const judge::Judgement& judgement, const judge::Candidate& candidate) const {
  store::Trial trial;
  trial.task = task_.id;
  trial.proposer = proposal.proposer;
  trial.note = proposal.note;
  trial.point = proposal.point;
  trial.verdict = judge::name_of(judgement.verdict);
  trial.rule = judgement.rule;
  Json evidence = judgement.evidence;
  const size_t launches = evidence.contains("kernels") ? evidence["kernels"].size() : 1;
  if (const std::string bound = bound_of(task_, settings_.ceilings, launches, judgement.median_us); !bound.empty())
    evidence["bound"] = bound;
  trial.evidence = evidence.dump(-1, ' ', false, Json::error_handler_t::replace);  // a log may be cut inside a character
  trial.kernel_hash = kernel_hash(candidate.file, candidate.point);
  trial.median_us = judgement.median_us;
  trial.compile_seconds = judgement.compile_seconds;
  trial.judge_seconds = judgement.judge_seconds;
  trial.peak_memory_mb = judgement.peak_memory_mb;
  const Rate rate = rate_of(task_, settings_.ceilings, judgement.median_us);
  trial.tflops = rate.tflops;
  trial.percent_of_peak = rate.percent_of_peak;
  if (const auto& baseline = run_.state(task_.id).baseline) {
    trial.speedup_vs_best = ratio(baseline->best_us, judgement.median_us);
    trial.speedup_vs_eager = ratio(baseline->eager_us, judgement.median_us);
  }
  return trial;
}

BenchResult TaskSearch::bench_edited(const std::string& kernel_text, const std::string& note, int tune, const std::string& proposer) {
  kernel::KernelFile file = kernel::KernelFile::parse(kernel_text, run_.kernel_path(task_.id).string());
  kernel::KernelFile before = space_->file();
  const kernel::Point defaults = file.defaults();
  look_at(std::move(file));
  BenchResult result;
  result.steps.push_back(run({defaults, proposer, note, std::nullopt}));
  for (int i = 0; i < tune && result.steps.back().trial; ++i) {
    auto step = tune_once(note);
    if (!step) break;
    result.steps.push_back(std::move(*step));
  }
  if (result.kept()) return result;
  if (result.steps.back().trial) run_.revert(task_.id);  // else it was not judged to its end, and is not the edit's fault
  look_at(std::move(before));
  return result;
}

std::optional<Step> TaskSearch::tune_once(const std::string& note) {
  auto proposal = propose();
  if (!proposal) return std::nullopt;
  proposal->note = note.empty() ? proposal->note : note + ": " + proposal->note;
  return run(*proposal);
}

}  // namespace ak::search
