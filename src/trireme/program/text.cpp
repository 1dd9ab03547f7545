#include "trireme/program/text.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

constexpr std::array kNames = {"Forward",        "Backward",       "BackwardInput", "WeightGrad",   "Recompute",
                               "SendActivation", "RecvActivation", "SendGradient",  "RecvGradient", "AddSlot",
                               "AllReduce",      "ReduceScatter",  "AllGather",     "Free",         "StashWeights",
                               "RestoreWeights", "OptimizerStep"};

OpCode known_op(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<OpCode>(i);
  }
  const auto meant = nearest(name, kNames);
  throw UsageError(fmt::format("there is no instruction '{}'", name),
                   meant ? fmt::format("did you mean {}?", *meant) : fmt::format("there are {}", join(kNames, ", ")));
}

int number_in(std::string_view word, std::string_view of) {
  int value = 0;
  const char* const first = word.data() + (word.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(first, word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) {
    throw UsageError(fmt::format("'{}' is no number for {}", word, of));
  }
  return value;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (const std::string_view word : split(line, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

/// The numbers of a program that are not lists, by name.
template <typename ProgramType>
auto numbers_of(ProgramType& program) {
  return std::array{std::pair{"micro-batches", &program.num_micro_batches},
                    std::pair{"groups", &program.num_groups},
                    std::pair{"slots", &program.num_slots},
                    std::pair{"replicas", &program.num_ranks},
                    std::pair{"pipeline-rank", &program.pipeline_rank},
                    std::pair{"pipeline-ranks", &program.num_pipeline_ranks},
                    std::pair{"updates", &program.num_updates}};
}

template <typename ProgramType>
auto lists_of(ProgramType& program) {
  return std::array{std::pair{"rank-of-stage", &program.rank_of_stage},
                    std::pair{"groups-of-stage", &program.groups_of_stage},
                    std::pair{"replicas-of-rank", &program.replicas_of_rank},
                    std::pair{"partials-of-replica", &program.across.partials_of_rank}};
}

template <typename InstructionType>
auto fields_of(InstructionType& instruction) {
  return std::array{std::pair{"stage", &instruction.stage},     std::pair{"micro-batch", &instruction.micro_batch},
                    std::pair{"version", &instruction.version}, std::pair{"group", &instruction.group},
                    std::pair{"slot", &instruction.slot},       std::pair{"from-slot", &instruction.from_slot},
                    std::pair{"peer", &instruction.peer}};
}

void read_header(Program& program, std::string_view name, const std::vector<std::string_view>& values) {
  for (const auto& [known, number] : numbers_of(program)) {
    if (name != known) continue;
    if (values.size() != 1) throw UsageError(fmt::format("{} needs one number", name));
    *number = number_in(values[0], name);
    return;
  }
  for (const auto& [known, list] : lists_of(program)) {
    if (name != known) continue;
    list->clear();
    for (const std::string_view value : values) list->push_back(number_in(value, name));
    return;
  }
  if (name != "additions") throw UsageError(fmt::format("a program has no '{}'", name));
  program.across.direct = false;
  for (const std::string_view value : values) {
    const std::vector<std::string_view> pair = split(value, '+');
    if (pair.size() != 2) throw UsageError(fmt::format("'{}' is no addition such as 0+1", value));
    program.across.additions.push_back({number_in(pair[0], name), number_in(pair[1], name)});
  }
}

}  // namespace

std::string_view name_of(OpCode op) { return kNames[static_cast<size_t>(op)]; }

std::string instruction_to_text(const Instruction& i) {
  std::string text(name_of(i.op));
  if (i.stage >= 0) text += fmt::format(" stage {}", i.stage);
  if (i.micro_batch >= 0) text += fmt::format(" micro-batch {}", i.micro_batch);
  if (i.version >= 0) text += fmt::format(" version {}", i.version);
  if (i.group >= 0) text += fmt::format(" group {}", i.group);
  if (i.peer != 0) text += fmt::format(" peer {:+d}", i.peer);
  if (i.from_slot >= 0) {
    text += fmt::format(" slot {} += slot {}", i.slot, i.from_slot);
  } else if (i.slot >= 0) {
    text += fmt::format(" {} slot {}", i.add ? "+=" : "->", i.slot);
  }
  return text;
}

Instruction instruction_from_text(std::string_view line) {
  const std::vector<std::string_view> words = words_of(line);
  if (words.empty()) throw UsageError("an instruction is missing");
  Instruction instruction{.op = known_op(words[0])};
  for (size_t at = 1; at < words.size();) {
    const std::string_view word = words[at];
    if (word == "->" || word == "+=") {  // its slot comes next
      instruction.add = word == "+=" && instruction.slot < 0;
      if (instruction.slot >= 0) instruction.from_slot = -2;
      ++at;
      continue;
    }
    if (at + 1 == words.size()) throw UsageError(fmt::format("'{}' needs a number: {}", word, line));
    const int value = number_in(words[at + 1], word);
    int* field = nullptr;
    for (const auto& [name, known] : fields_of(instruction)) {
      if (word == name) field = known;
    }
    if (field == &instruction.slot && instruction.from_slot == -2) field = &instruction.from_slot;
    if (field == nullptr) throw UsageError(fmt::format("'{}' says nothing of an instruction: {}", word, line));
    *field = value;
    at += 2;
  }
  if (instruction.from_slot == -2) throw UsageError(fmt::format("a slot is missing after '+=': {}", line));
  return instruction;
}

std::string program_to_text(const Program& program) {
  std::string text;
  for (const auto& [name, number] : numbers_of(program)) text += fmt::format("{}: {}\n", name, *number);
  for (const auto& [name, list] : lists_of(program)) {
    if (!list->empty()) text += fmt::format("{}: {}\n", name, fmt::join(*list, " "));
  }
  if (!program.across.direct) {
    text += "additions:";
    for (const Addition& addition : program.across.additions)
      text += fmt::format(" {}+{}", addition.into, addition.from);
    text += "\n";
  }
  return text + "\n" + program.to_string();
}

Program program_from_text(std::string_view text) {
  Program program;
  int number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    try {
      const size_t colon = line.find(':');
      if (colon == std::string_view::npos) {
        program.instructions.push_back(instruction_from_text(line));
      } else {
        read_header(program, line.substr(0, colon), words_of(line.substr(colon + 1)));
      }
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("line {} of the program: {}", number, error.what()));
    }
  }
  return program;
}

std::string program_to_json(const Program& program) {
  Json json;
  for (const auto& [name, number] : numbers_of(program)) json[name] = *number;
  for (const auto& [name, list] : lists_of(program)) json[name] = *list;
  json["direct"] = program.across.direct;
  json["additions"] = Json::array();
  for (const Addition& addition : program.across.additions) {
    json["additions"].push_back({addition.into, addition.from});
  }
  json["instructions"] = Json::array();
  const Instruction unset;
  for (const Instruction& instruction : program.instructions) {
    Json entry = {{"op", name_of(instruction.op)}};
    const auto absent = fields_of(unset);
    const auto fields = fields_of(instruction);
    for (size_t i = 0; i < fields.size(); ++i) {
      if (*fields[i].second != *absent[i].second) entry[fields[i].first] = *fields[i].second;
    }
    if (instruction.add) entry["add"] = true;
    json["instructions"].push_back(std::move(entry));
  }
  return json.dump();
}

Program program_from_json(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    Program program;
    for (const auto& [name, number] : numbers_of(program)) *number = json.at(name).get<int>();
    for (const auto& [name, list] : lists_of(program)) {
      const bool may_be_missing = list == &program.replicas_of_rank;  // in those of older versions
      if (!may_be_missing || json.contains(name)) *list = json.at(name).get<std::vector<int>>();
    }
    program.across.direct = json.at("direct").get<bool>();
    for (const Json& pair : json.at("additions")) {
      program.across.additions.push_back({pair.at(0).get<int>(), pair.at(1).get<int>()});
    }
    for (const Json& entry : json.at("instructions")) {
      Instruction instruction{.op = known_op(entry.at("op").get<std::string>())};
      for (const auto& [name, field] : fields_of(instruction)) *field = entry.value(name, *field);
      instruction.add = entry.value("add", false);
      program.instructions.push_back(instruction);
    }
    return program;
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("this is no program in JSON: {}", error.what()));
  }
}

}  // namespace trireme
