// The order of writes is what makes a kill harmless: a kept file goes to history/ under its number first, then the journal
// says that it was kept, then the views follow. On opening, every view is made again from the journal.
#include "store/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/toml.h"
#include "store/journal.h"
#include "store/records.h"
#include "store/results.h"

namespace ak::store {
namespace {

namespace fs = std::filesystem;

constexpr int64_t format_version = 1;
constexpr std::string_view hand = "hand", agent = "agent ";  // proposers of an edited file: its text is kept, whatever came of it

std::string model_name(const std::string& model) {
  std::string name = fs::path(model.substr(0, model.rfind(':'))).stem().string();
  if (model.rfind(':') != std::string::npos) name += "-" + model.substr(model.rfind(':') + 1);
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.') c = '-';
  }
  return name;
}

}  // namespace

struct Run::State {
  fs::path directory;
  RunRequest request;
  const Clock* clock = nullptr;
  bool resumed = false;
  std::optional<FileLock> lock;
  std::optional<Journal> journal;  // nothing when read only
  std::map<std::string, TaskState> tasks;
  std::vector<std::string> order;
  int64_t experiments = 0;

  void append(Json record) {
    AK_CHECK(journal.has_value(), "a run opened read-only is not written");
    record["time"] = clock->timestamp();
    journal->append(record);
  }

  TaskState& task(const std::string& id) {
    const auto found = tasks.find(id);
    if (found == tasks.end()) {
      std::string known;
      for (const std::string& each : order) known += (known.empty() ? "" : ", ") + each;
      throw Error("this run has no task '" + id + "'", known.empty() ? "run `autokernel extract` first" : "its tasks are " + known);
    }
    return found->second;
  }

  void replay(const std::vector<Json>& records) {
    for (size_t i = 0; i < records.size(); ++i) {
      try {
        replay(records[i]);
      } catch (const Json::exception& error) {  // each record is whole: another version wrote it
        throw Error(fmt::format("record {} of {} is not as this version writes it: {}", i + 1, (directory / "journal.jsonl").string(),
                                error.what()),
                    "go on with the version that began the run, or start another: --fresh, or another --run-dir");
      }
    }
  }

  void replay(const Json& record) {
    const std::string type = record.at("type");
    if (type == "task" && tasks.count(record.at("task")) == 0) {
      TaskState& state = tasks[record.at("task")];
      state.id = record.at("task");
      state.family = record.at("family");
      state.share_percent = record.at("share_percent");
      state.backend = kernel::parse_backend(record.value("backend", request.backend));
      order.push_back(state.id);
    }
    if (type == "baseline") task(record.at("task")).baseline = baseline_from_json(record);
    if (type == "confirmation") task(record.at("task")).confirmation = confirmation_from_json(record);
    if (type == "refusal") task(record.at("task")).refused = record.at("experiment").get<int64_t>();
    if (type == "trial") replay_trial(trial_from_json(record));
    if (type == "move_on") task(record.at("task")).moved_on = record.at("reason").get<std::string>();
    if (type == "reopen") task(record.at("task")).moved_on.reset();
  }

  void replay_trial(Trial trial) {
    experiments = std::max(experiments, trial.experiment);
    TaskState& state = task(trial.task);
    if (trial.verdict == "kept") state.incumbent = trial;
    state.trials.push_back(std::move(trial));
  }

  fs::path task_directory(const std::string& id) const { return directory / "tasks" / id; }
  fs::path file_of(const std::string& id, const std::string& stem) const {
    return task_directory(id) / (stem + fs::path(kernel::file_name(tasks.at(id).backend)).extension().string());
  }
  fs::path history_file(const std::string& id, int64_t experiment) const { return file_of(id, fmt::format("history/{:04}", experiment)); }

  void rewrite_views() {
    std::string table = results_header();
    for (const std::string& id : order) {
      if (tasks[id].baseline) table += results_row(tasks[id], *tasks[id].baseline);
    }
    std::vector<const Trial*> trials;
    for (const auto& [id, state] : tasks) {
      for (const Trial& trial : state.trials) trials.push_back(&trial);
    }
    std::sort(trials.begin(), trials.end(), [](const Trial* a, const Trial* b) { return a->experiment < b->experiment; });
    for (const Trial* trial : trials) table += results_row(tasks[trial->task], *trial);
    write_file(directory / "results.tsv", table);
    for (const auto& [id, state] : tasks) {
      if (!state.incumbent) continue;
      const auto kept = read_file_if_exists(history_file(id, state.incumbent->experiment));
      if (kept && read_file_if_exists(file_of(id, "best")) != kept) write_file(file_of(id, "best"), *kept);
    }
  }

  void append_result(const std::string& row) {
    if (row.empty()) return;
    Descriptor fd(::open((directory / "results.tsv").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!fd.valid() || ::write(fd.get(), row.data(), row.size()) != static_cast<ssize_t>(row.size())) {
      throw Error("cannot append to results.tsv: " + std::string(std::strerror(errno)),
                  "the journal has the trial; the table is made again on resume");
    }
  }

  void lock_directory() {
    lock = FileLock::try_acquire(directory / "lock");
    if (!lock) {
      const std::string owner = read_file_if_exists(directory / "owner").value_or("another process");
      throw Error("the run " + directory.string() + " is in use by " + owner,
                  "wait for it, stop it, or name another directory with --run-dir");
    }
    write_file(directory / "owner", "process " + std::to_string(::getpid()) + "\n");
  }

  void read_request() {
    const Json toml = parse_toml(read_file(directory / "run.toml"), (directory / "run.toml").string());
    if (toml.value("format", int64_t{0}) != format_version) {
      throw Error("the run " + directory.string() + " has format " + toml.value("format", Json()).dump() + "; this program writes format " +
                      std::to_string(format_version),
                  "open it with the version that wrote it, or start another run with --fresh or --run-dir");
    }
    try {
      request = request_from_json(toml);
    } catch (const Json::exception& error) {
      throw Error("run.toml of " + directory.string() + " is malformed: " + error.what());
    }
  }

  void start_session() {
    lock_directory();
    journal.emplace(Journal::open(directory / "journal.jsonl"));
    resumed = !journal->records().empty();
    replay(journal->records());
    append({{"type", "run"}, {"request", to_json(request)}, {"version", AK_VERSION}, {"resumed", resumed}});
    rewrite_views();
  }
};

bool TaskState::beats_baseline() const {
  if (!incumbent || !baseline || refused == incumbent->experiment) return false;
  if (const Confirmation* known = confirmed()) return known->speedup > 1;
  return incumbent->median_us > 0 && incumbent->median_us < baseline->best_us;
}

fs::path Run::default_directory(const RunRequest& request) {
  return fs::path("autokernel-runs") / (model_name(request.model) + "-" + short_hash(to_json(request).dump()));
}

Run Run::open(const fs::path& directory, const RunRequest& request, const Clock& clock) {
  auto state = std::make_unique<State>();
  state->directory = directory;
  state->clock = &clock;
  if (fs::exists(directory / "run.toml")) {
    state->read_request();
    if (to_json(state->request) != to_json(request)) {
      throw Error("the run " + directory.string() + " is of another request (" + state->request.model + ", " + state->request.dtype + ")",
                  "repeat that request, or choose another directory");
    }
  } else {
    state->request = request;
    Json toml = to_json(request);
    toml["format"] = format_version;
    write_file(directory / "run.toml", format_toml(toml));
  }
  state->start_session();
  return Run(std::move(state));
}

Run Run::open_existing(const fs::path& directory, const Clock& clock) {
  auto state = std::make_unique<State>();
  state->directory = directory;
  state->clock = &clock;
  if (!fs::exists(directory / "run.toml"))
    throw Error("there is no run in " + directory.string(), "start one with `autokernel run MODEL` or `autokernel prepare MODEL`");
  state->read_request();
  state->start_session();
  return Run(std::move(state));
}

Run Run::read_only(const fs::path& directory, const Clock& clock) {
  auto state = std::make_unique<State>();
  state->directory = directory;
  state->clock = &clock;
  if (!fs::exists(directory / "run.toml")) throw Error("there is no run in " + directory.string(), "start one with `autokernel run MODEL`");
  state->read_request();
  size_t valid_bytes = 0;
  state->replay(parse_journal(read_file_if_exists(directory / "journal.jsonl").value_or(""), valid_bytes));
  return Run(std::move(state));
}

Run::Run(std::unique_ptr<State> state) : state_(std::move(state)) {}
Run::Run(Run&&) noexcept = default;
Run::~Run() = default;

const fs::path& Run::directory() const { return state_->directory; }
const RunRequest& Run::request() const { return state_->request; }
bool Run::resumed() const { return state_->resumed; }
int64_t Run::experiments() const { return state_->experiments; }
std::vector<std::string> Run::task_ids() const { return state_->order; }
const TaskState& Run::state(const std::string& id) const { return state_->task(id); }
kernel::Task Run::task(const std::string& id) const {
  state_->task(id);
  return kernel::task_from_json(read_json(state_->task_directory(id) / "task.json"));
}

void Run::add_task(const kernel::Task& task, double share_percent, const Json& profile, const std::string& starter_text,
                   kernel::Backend backend) {
  Json json = kernel::to_json(task);
  json["profile"] = profile;
  const fs::path directory = state_->task_directory(task.id);
  write_json(directory / "task.json", json);
  for (const char* stem : {"kernel", "best"}) {
    const fs::path file = directory / (stem + fs::path(kernel::file_name(backend)).extension().string());
    if (!fs::exists(file)) write_file(file, starter_text);
  }
  if (state_->tasks.count(task.id) != 0) return;
  const Json record = {{"type", "task"},
                       {"task", task.id},
                       {"family", task.family},
                       {"share_percent", share_percent},
                       {"backend", kernel::name_of(backend)}};
  state_->append(record);
  state_->replay(record);
}

void Run::record_baseline(const std::string& task, const Baseline& baseline) {
  state_->task(task);
  state_->append(to_json(task, baseline));
  state_->task(task).baseline = baseline;
  state_->append_result(results_row(state_->task(task), baseline));
}

int64_t Run::record(Trial trial, const std::string& kernel_text) {
  state_->task(trial.task);
  trial.experiment = state_->experiments + 1;
  trial.kernel_hash = content_hash(kernel_text);
  const bool kept = trial.verdict == "kept";
  if (kept || trial.proposer == hand || trial.proposer.starts_with(agent))
    write_file(state_->history_file(trial.task, trial.experiment), kernel_text);
  state_->append(to_json(trial));
  const int64_t experiment = trial.experiment;
  const std::string task = trial.task;
  state_->replay_trial(trial);
  state_->append_result(results_row(state_->task(task), trial));
  if (kept) {
    write_file(best_path(task), kernel_text);
    write_file(kernel_path(task), kernel_text);
  }
  return experiment;
}

void Run::record_confirmation(const std::string& task, const Confirmation& confirmation) {
  state_->append(to_json(task, confirmation));
  state_->task(task).confirmation = confirmation;
}

void Run::record_refusal(const std::string& task, const Json& about) {
  TaskState& state = state_->task(task);
  AK_CHECK(state.incumbent, "what is refused was kept");
  state.refused = state.incumbent->experiment;
  Json record = {{"type", "refusal"}, {"task", task}, {"experiment", *state.refused}};
  record.update(about);
  state_->append(record);
}

void Run::move_on(const std::string& task, const std::string& reason) {
  state_->task(task).moved_on = reason;
  state_->append({{"type", "move_on"}, {"task", task}, {"reason", reason}});
}

void Run::reopen_task(const std::string& task) {
  state_->task(task).moved_on.reset();
  state_->append({{"type", "reopen"}, {"task", task}});
}

void Run::record_event(const Json& record) { state_->append(record); }

fs::path Run::kernel_path(const std::string& task) const { return state_->file_of(task, "kernel"); }
fs::path Run::best_path(const std::string& task) const { return state_->file_of(task, "best"); }
void Run::revert(const std::string& task) { write_file(kernel_path(task), read_file(best_path(task))); }

}  // namespace ak::store
