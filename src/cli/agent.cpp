// One loop, no thread: an agent's requests wait in its socket until the one before was judged.
#include "cli/agent.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/agent_view.h"
#include "cli/bench.h"
#include "cli/engine_socket.h"
#include "cli/steps.h"
#include "cli/working_copy.h"
#include "core/error.h"
#include "core/file.h"
#include "search/agent_command.h"

extern char** environ;

namespace ak::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr double silent_minutes_allowed = 10;  // without a word or a request
constexpr double farewell_seconds = 20;        // between the last round and the end of the process
constexpr int failures_allowed = 2;            // agents in a row that judged nothing
constexpr auto pause = 20ms;

constexpr std::string_view prompt =
    "You are in a directory with one GPU or CPU kernel to make faster. Read TASK.md, then program.md, then the kernel file that TASK.md "
    "names. "
    "Edit only that file. After every change run the `autokernel bench` command of TASK.md with a note of what you changed and why; it "
    "judges, "
    "keeps or reverts. Read its verdict, and go on until your verdicts or minutes are used up. Ask nobody: there is no one to answer.";

/// Variables that any program needs to find its way, to the network too.
constexpr std::string_view common_variables[] = {"LANG",        "LC_ALL",     "TERM",          "USER",         "LOGNAME",
                                                 "TZ",          "HTTP_PROXY", "HTTPS_PROXY",   "NO_PROXY",     "http_proxy",
                                                 "https_proxy", "no_proxy",   "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"};

/// What every agent of a run shares.
struct Agents {
  search::AgentCommand command;
  const Options& options;

  std::string proposer() const { return "agent " + command.name; }
};

std::map<std::string, std::string> visible_environment(const Agents& agents) {
  const auto& starts = agents.command.variable_starts;
  const auto& named = agents.options.agent_variables;
  std::map<std::string, std::string> visible;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry), name = text.substr(0, text.find('='));
    const bool wanted = std::ranges::find(common_variables, name) != std::end(common_variables) ||
                        std::ranges::find(named, name) != named.end() ||
                        std::ranges::any_of(starts, [&](const std::string& start) { return name.starts_with(start); });
    if (wanted && name.size() < text.size()) visible[name] = text.substr(name.size() + 1);
  }
  visible["RUN"] = View::inside;  // so that the commands of program.md work as they are
  return visible;
}

View view_for(const Agents& agents, const fs::path& working_copy) {
  View view{.working_copy = fs::absolute(working_copy), .environment = visible_environment(agents)};
  view.read_only = needed_to_start(agents.command.words.front());
  for (const std::string& word : agents.command.words) {
    if (fs::is_regular_file(word)) view.read_only.push_back(fs::absolute(word));
  }
  const char* home = std::getenv("HOME");
  for (const std::string& path : agents.command.home_paths) {
    if (home != nullptr) view.read_write.push_back(fs::path(home) / path);
  }
  for (const std::string& path : agents.options.agent_paths) view.read_write.push_back(fs::absolute(path));
  return view;
}

/// One agent on one task.
class Agent {
 public:
  Agent(Session& session, const Agents& agents, std::string task, int64_t rounds)
      : session_(session),
        agents_(agents),
        task_(std::move(task)),
        rounds_allowed_(rounds),
        directory_(session.file("agents") / task_),
        log_path_(session.file("agents") / (task_ + ".log")),
        copy_(make_working_copy(session, task_, directory_, agents.options.agent_minutes, rounds)),
        socket_(directory_),
        started_ns_(session.clock().now_ns()) {
    fs::remove(log_path_);
    sit_down();
  }

  const std::string& task() const { return task_; }
  int64_t rounds() const { return rounds_; }
  const std::string& why_over() const { return why_over_; }

  /// Serve what waits, and look whether it is over; whether there was something to do.
  bool step() {
    const bool served = socket_.serve_pending([&](const Json& request) { return answer(request); });
    if (served) last_sign_ns_ = session_.clock().now_ns();
    if (why_over_.empty()) look_after();
    return served;
  }

  void end(const std::string& why) {
    if (process_) process_->kill();
    why_over_ = why;
    session_.run().record_event(
        {{"type", "agent"}, {"task", task_}, {"agent", agents_.command.name}, {"rounds", rounds_}, {"kept", kept_}, {"reason", why}});
    session_.progress().note(fmt::format("{} {}: {}; {} rounds, {} kept", agents_.proposer(), task_, why, rounds_, kept_));
  }

 private:
  double seconds_since(int64_t start_ns) const { return session_.clock().seconds_since(start_ns); }

  void sit_down() {
    const std::map<std::string, std::string> values = {
        {"prompt", std::string(prompt)}, {"prompt_file", std::string(View::inside) + "/PROMPT.md"}, {"workdir", View::inside}};
    if (sittings_ == 0) write_file(directory_ / "PROMPT.md", std::string(prompt) + "\n");
    std::vector<std::string> words = filled_in(agents_.command, values);
    for (std::string& word : words) {
      if (fs::is_regular_file(word)) word = fs::absolute(word).string();  // it starts in another directory
    }
    ProcessOptions options = confined(words, view_for(agents_, directory_));
    options.environment["TASK"] = task_;
    Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    Descriptor log(::open(log_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log.valid()) throw Error("cannot write " + log_path_.string());
    options.descriptors = {{0, nothing.get()}, {1, log.get()}, {2, log.get()}};
    process_.emplace(Process::start(options));
    ++sittings_;
    rounds_before_ = rounds_;
    last_sign_ns_ = session_.clock().now_ns();
  }

  Json answer(const Json& request) {
    const std::string verb = request.at("verb");
    if (verb == "files") return {{"files", current_files(session_.run(), task_)}};
    if (verb != "bench") throw Error("a working copy's engine does not know '" + verb + "'", "it answers bench and files");
    if (rounds_ >= rounds_allowed_) throw Error("your verdicts are used up", "stop here: the best kernel is kept");
    const Json& arguments = request.at("arguments");
    const int64_t tune = std::clamp<int64_t>(arguments.value("tune", int64_t{0}), 0, rounds_allowed_ - rounds_ - 1);
    const int64_t before = session_.run().experiments();
    const Json result = bench_kernel(session_, {.task = task_,
                                                .note = arguments.value("note", std::string()),
                                                .kernel_text = arguments.at("kernel_text"),
                                                .proposer = agents_.proposer(),
                                                .tune = tune});
    rounds_ += session_.run().experiments() - before;
    if (result.at("kept").get<bool>()) ++kept_;
    if (rounds_ >= rounds_allowed_) last_round_ns_ = session_.clock().now_ns();
    session_.progress().note(fmt::format("{} {}: {} ({})", agents_.proposer(), task_, result.at("verdict").get<std::string>(),
                                         result.at("note").get<std::string>()));
    return {{"bench", result}, {"files", current_files(session_.run(), task_)}};
  }

  void look_after() {
    note_output();
    if (seconds_since(started_ns_) > 60 * agents_.options.agent_minutes) return end("its minutes are over");
    if (last_round_ns_ && seconds_since(*last_round_ns_) > farewell_seconds) return end("its rounds are used up");
    if (seconds_since(last_sign_ns_) > 60 * silent_minutes_allowed)
      return end(fmt::format("it was silent for {:g} minutes", silent_minutes_allowed));
    const auto status = process_->wait(std::chrono::milliseconds(0));
    if (!status) return;
    if (rounds_ >= rounds_allowed_) return end("its rounds are used up");
    if (rounds_ > rounds_before_) return sit_down();  // there is something left, and it makes use of it
    end(rounds_ > 0 ? "it has no more ideas: " + status->text() : "it judged nothing: " + status->text() + ", " + last_words());
  }

  void note_output() {
    std::error_code ignored;
    const auto bytes = fs::file_size(log_path_, ignored);
    if (bytes == log_bytes_) return;
    log_bytes_ = bytes;
    last_sign_ns_ = session_.clock().now_ns();
  }

  std::string last_words() const {
    constexpr size_t longest = 300;
    std::string text = read_file_if_exists(log_path_).value_or("");
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
    if (text.empty()) return "and it printed nothing";
    return "its last words are: " + (text.size() > longest ? "…" + text.substr(text.size() - longest) : text);
  }

  Session& session_;
  const Agents& agents_;
  std::string task_;
  int64_t rounds_allowed_, rounds_ = 0, rounds_before_ = 0, kept_ = 0, sittings_ = 0;
  fs::path directory_, log_path_;
  WorkingCopy copy_;
  EngineSocket socket_;
  int64_t started_ns_, last_sign_ns_ = 0;
  std::optional<int64_t> last_round_ns_;
  uintmax_t log_bytes_ = 0;
  std::optional<Process> process_;
  std::string why_over_;
};

/// Rounds that an agent has had: what an interrupted run has left goes on from there.
int64_t rounds_of(const store::TaskState& state, const std::string& proposer) {
  return std::ranges::count(state.trials, proposer, &store::Trial::proposer);
}

/// Tasks in the order in which they are worth it.
std::deque<std::string> ranked_tasks(Session& session, const std::string& only) {
  std::deque<std::string> tasks;
  for (const plan::Standing& standing : make_scheduler(session, {}, only).ranking()) {
    if (!standing.moved_on) tasks.push_back(standing.task);
  }
  return tasks;
}

}  // namespace

void check_agent(const Options& options) {
  if (options.agent.empty()) return;
  const search::AgentCommand command = search::parse_agent_command(options.agent);
  needed_to_start(command.words.front());
  require_confinement();
}

std::string let_agents_propose(Session& session, const Options& options, const plan::Budget& budget, const std::string& only) {
  const Agents agents{search::parse_agent_command(options.agent), options};
  const int64_t start_ns = session.clock().now_ns(), first = session.run().experiments();
  const auto spent = [&] {
    const int64_t trials = session.run().experiments() - first;
    return (budget.experiments && trials >= *budget.experiments) ||
           (budget.minutes && session.clock().seconds_since(start_ns) > 60 * *budget.minutes);
  };
  const auto budget_left = [&] {
    return budget.experiments ? *budget.experiments - (session.run().experiments() - first) : std::numeric_limits<int64_t>::max();
  };
  std::deque<std::string> waiting = ranked_tasks(session, only);
  std::vector<std::unique_ptr<Agent>> working;
  EngineSocket socket(session.run().directory());  // a person may judge a kernel of another task meanwhile
  int failures = 0;
  session.progress().phase(fmt::format("{} proposes for {} tasks, {} at a time", agents.proposer(), waiting.size(), options.agents));
  while (!stop_requested() && !spent() && failures < failures_allowed) {
    while (!waiting.empty() && working.size() < static_cast<size_t>(options.agents)) {
      const std::string task = waiting.front();
      waiting.pop_front();
      const int64_t left = options.agent_rounds - rounds_of(session.run().state(task), agents.proposer());
      if (left > 0) working.push_back(std::make_unique<Agent>(session, agents, task, std::min(left, budget_left())));
    }
    if (working.empty()) return "every task was worked on";
    bool busy = socket.serve_pending([&](const Json& request) { return answer_client(session, request); });
    for (const auto& agent : working) busy = agent->step() || busy;
    std::erase_if(working, [&](const auto& agent) {
      if (agent->why_over().empty()) return false;
      failures = agent->rounds() > 0 ? 0 : failures + 1;
      return true;
    });
    if (!busy) std::this_thread::sleep_for(pause);
  }
  const std::string why = stop_requested() ? "stopped" : spent() ? "the budget is spent" : "the agent fails";
  for (const auto& agent : working) agent->end(why);
  return why;
}

}  // namespace ak::cli
