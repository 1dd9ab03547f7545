#include "trireme/program/text.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

constexpr std::array kNames = {
    "Forward",        "Backward",         "BackwardInput",   "WeightGrad", "Recompute",     "SendActivation",
    "RecvActivation", "SendGradient",     "RecvGradient",    "AddSlot",    "Push",          "AllReduce",
    "ReduceScatter",  "AllGather",        "Combine",         "Meet",       "Free",          "StashWeights",
    "RestoreWeights", "SendTiedGradient", "AddTiedGradient", "Norm",       "OptimizerStep", "Pull",
    "SendTiedWeight", "TakeTiedWeight"};

OpCode known_op(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<OpCode>(i);
  }
  const auto meant = nearest(name, kNames);
  throw UsageError(fmt::format("there is no instruction '{}'", name),
                   meant ? fmt::format("did you mean {}?", *meant) : fmt::format("there are {}", join(kNames, ", ")));
}

/// Integer fields of a program, by name.
template <typename ProgramType>
auto numbers_of(ProgramType& program) {
  return std::array{std::pair{"micro-batches", &program.num_micro_batches},
                    std::pair{"groups", &program.num_groups},
                    std::pair{"slots", &program.num_slots},
                    std::pair{"replicas", &program.num_ranks},
                    std::pair{"pipeline-rank", &program.pipeline_rank},
                    std::pair{"pipeline-ranks", &program.num_pipeline_ranks},
                    std::pair{"updates", &program.num_updates},
                    std::pair{"zero", &program.zero.zero}};
}

template <typename ProgramType>
auto lists_of(ProgramType& program) {
  return std::array{std::pair{"rank-of-stage", &program.rank_of_stage},
                    std::pair{"groups-of-stage", &program.groups_of_stage},
                    std::pair{"replicas-of-rank", &program.replicas_of_rank},
                    std::pair{"shared-groups", &program.zero.sharded_groups},
                    std::pair{"partials-of-replica", &program.across.partials_of_rank}};
}

template <typename ProgramType>
auto flags_of(ProgramType& program) {
  return std::array{std::pair{"keeps-weights", &program.zero.keep},
                    std::pair{"scatters-each-micro-batch", &program.zero.each_micro_batch}};
}

template <typename InstructionType>
auto fields_of(InstructionType& instruction) {
  return std::array{std::pair{"stage", &instruction.stage},     std::pair{"micro-batch", &instruction.micro_batch},
                    std::pair{"version", &instruction.version}, std::pair{"group", &instruction.group},
                    std::pair{"slot", &instruction.slot},       std::pair{"from-slot", &instruction.from_slot},
                    std::pair{"tied", &instruction.tied},       std::pair{"peer", &instruction.peer}};
}

}  // namespace

std::string_view name_of(OpCode op) { return kNames[static_cast<size_t>(op)]; }

std::string instruction_to_text(const Instruction& i) {
  std::string text(name_of(i.op));
  if (i.stage >= 0) text += fmt::format(" stage {}", i.stage);
  if (i.micro_batch >= 0) text += fmt::format(" micro-batch {}", i.micro_batch);
  if (i.version >= 0) text += fmt::format(" version {}", i.version);
  if (i.group >= 0) text += fmt::format(" group {}", i.group);
  if (i.tied >= 0) text += fmt::format(" tied {}", i.tied);
  if (i.peer != 0) text += fmt::format(" peer {:+d}", i.peer);
  if (i.from_slot >= 0) {
    text += fmt::format(" slot {} += slot {}", i.slot, i.from_slot);
  } else if (i.slot >= 0) {
    text += fmt::format(" {} slot {}", i.add ? "+=" : "->", i.slot);
  } else if (i.add) {
    text += " added";
  }
  return text;
}

std::string program_to_json(const Program& program) {
  Json json;
  for (const auto& [name, number] : numbers_of(program)) json[name] = *number;
  for (const auto& [name, list] : lists_of(program)) json[name] = *list;
  for (const auto& [name, flag] : flags_of(program)) json[name] = *flag;
  json["update"] = {{"exchange", static_cast<int>(program.update.exchange)},
                    {"pushes-one-sum", program.update.pushes_one_sum},
                    {"norm", program.update.norm},
                    {"refreshes-first", program.update.refreshes_first},
                    {"tied", Json::array()}};
  for (const TiedWeight& tied : program.update.tied)
    json["update"]["tied"].push_back({tied.owner, tied.use, tied.trained});
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
    const auto is_missing = [&](std::string_view name) {  // in files of older versions
      constexpr std::array kLater = {"replicas-of-rank", "shared-groups", "zero", "keeps-weights",
                                     "scatters-each-micro-batch"};
      return std::find(kLater.begin(), kLater.end(), name) != kLater.end() && !json.contains(name);
    };
    for (const auto& [name, number] : numbers_of(program)) {
      if (!is_missing(name)) *number = json.at(name).get<int>();
    }
    for (const auto& [name, list] : lists_of(program)) {
      if (!is_missing(name)) *list = json.at(name).get<std::vector<int>>();
    }
    for (const auto& [name, flag] : flags_of(program)) {
      if (!is_missing(name)) *flag = json.at(name).get<bool>();
    }
    if (json.contains("update")) {
      const Json& update = json["update"];
      if (const int kind = update.at("exchange").get<int>();
          kind < 0 || kind > static_cast<int>(GradientExchange::kLocal)) {
        throw UsageError(fmt::format("there is no exchange of gradients {}", kind));
      }
      program.update = {static_cast<GradientExchange>(update.at("exchange").get<int>()),
                        update.at("pushes-one-sum").get<bool>(), update.at("norm").get<bool>(),
                        update.at("refreshes-first").get<bool>()};
      for (const Json& tied : update.at("tied")) {
        program.update.tied.push_back({tied.at(0).get<int>(), tied.at(1).get<int>(), tied.at(2).get<bool>()});
      }
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
