// Words and presets.
#include "search/agent_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "core/error.h"

namespace ak::search {
namespace {

/// How each agent runs to its end without asking. It is confined from outside, so that it need not confine itself.
struct Known {
  std::string_view program, preset;
  std::vector<std::string> home_paths, variable_starts;
};

const std::vector<Known>& known_agents() {
  static const std::vector<Known> agents = {
      {"claude",
       "claude -p {prompt} --output-format json --permission-mode acceptEdits --allowedTools Read,Edit,Write,Bash",
       {".claude", ".claude.json"},
       {"ANTHROPIC_", "CLAUDE_"}},
      {"codex",
       "codex exec --json -s danger-full-access -c approval_policy=never --skip-git-repo-check {prompt}",
       {".codex"},
       {"OPENAI_", "CODEX_"}},
      {"gemini", "gemini -p {prompt} --output-format json --approval-mode yolo --skip-trust", {".gemini"}, {"GEMINI_", "GOOGLE_"}},
  };
  return agents;
}

class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text) {}

  std::vector<std::string> words() {
    std::vector<std::string> found;
    while (skip_blanks()) found.push_back(word());
    return found;
  }

 private:
  bool skip_blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return at_ < text_.size();
  }

  std::string word() {
    std::string result;
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) == 0) {
      const char c = text_[at_++];
      if (c == '\'' || c == '"') {
        result += quoted(c);
      } else if (c == '\\' && at_ < text_.size()) {
        result += text_[at_++];
      } else {
        result += c;
      }
    }
    return result;
  }

  std::string quoted(char quote) {
    std::string result;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      result += text_[at_++];
    }
    if (at_ == text_.size()) throw Error(fmt::format("--agent has an open quote: {}", text_), "close it");
    ++at_;
    return result;
  }

  std::string_view text_;
  size_t at_ = 0;
};

/// Calls `visit` with each {name} of a word, and where it begins.
template <class Visit>
void each_placeholder(const std::string& word, Visit visit) {
  for (size_t begin = word.find('{'); begin != std::string::npos; begin = word.find('{', begin + 1)) {
    const size_t end = word.find('}', begin);
    if (end == std::string::npos) return;
    visit(word.substr(begin + 1, end - begin - 1), begin);
  }
}

void check_placeholders(const AgentCommand& command) {
  bool told = false;
  for (const std::string& word : command.words) {
    each_placeholder(word, [&](const std::string& name, size_t) {
      const bool prompt = name == "prompt" || name == "prompt_file";
      const bool plain = !name.empty() && std::ranges::all_of(name, [](unsigned char c) { return std::islower(c) != 0 || c == '_'; });
      if (plain && !prompt && name != "workdir")
        throw Error("--agent names {" + name + "}, which nothing stands for", "use {prompt}, {prompt_file} and {workdir}");
      told = told || prompt;
    });
  }
  if (!told)
    throw Error("--agent does not say where the instructions go: " + fmt::format("{}", fmt::join(command.words, " ")),
                "put {prompt} or {prompt_file} into it, as in: claude -p {prompt}");
}

}  // namespace

AgentCommand parse_agent_command(std::string_view text) {
  for (const Known& agent : known_agents()) {
    if (agent.program == text) text = agent.preset;
  }
  AgentCommand command;
  command.words = Splitter(text).words();
  if (command.words.empty()) throw Error("--agent is empty", "name an agent (claude, codex, gemini) or a command with {prompt} in it");
  command.name = std::filesystem::path(command.words.front()).filename().string();
  for (const Known& agent : known_agents()) {
    if (agent.program != command.name) continue;
    command.home_paths = agent.home_paths;
    command.variable_starts = agent.variable_starts;
  }
  check_placeholders(command);
  return command;
}

std::vector<std::string> filled_in(const AgentCommand& command, const std::map<std::string, std::string>& values) {
  std::vector<std::string> words;
  for (const std::string& word : command.words) {
    std::string filled;
    size_t copied = 0;
    each_placeholder(word, [&](const std::string& name, size_t begin) {
      const auto value = values.find(name);
      if (value == values.end()) return;
      filled += word.substr(copied, begin - copied) + value->second;
      copied = begin + name.size() + 2;
    });
    words.push_back(filled + word.substr(copied));
  }
  return words;
}

}  // namespace ak::search
