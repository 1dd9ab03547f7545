#include "trireme/program/schedules/schedule_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

struct Word {
  OpCode op;
  std::string_view text;
};

constexpr Word kWords[] = {
    {OpCode::kForward, "F"},
    {OpCode::kBackward, "B"},
    {OpCode::kBackwardInput, "I"},
    {OpCode::kWeightGrad, "W"},
    {OpCode::kSendActivation, "SEND_F"},
    {OpCode::kRecvActivation, "RECV_F"},
    {OpCode::kSendGradient, "SEND_B"},
    {OpCode::kRecvGradient, "RECV_B"},
};

/// PyTorch's actions for FSDP's weights and gradients, which lowering decides here.
constexpr std::string_view kIgnored[] = {"UNSHARD", "RESHARD", "REDUCE_GRAD"};

constexpr int kMostCsvStages = 65536, kMostCsvMicroBatches = 1 << 20;
constexpr uint64_t kMostBytes = uint64_t{64} << 20;

std::string_view word_of(OpCode op) {
  for (const Word& word : kWords) {
    if (word.op == op) return word.text;
  }
  return {};
}

/// Removes the leading digits and returns their value; nullopt if there are none.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || text.starts_with('-')) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

/// Returns nullopt for a cell that is ignored.
std::optional<Instruction> parse_cell(std::string_view cell, size_t row, size_t column) {
  const auto fail = [&](const std::string& cause) {
    throw UsageError(
        fmt::format("row {}, column {}: '{}' {}", row, column, cell, cause),
        "a cell is stage, action, micro-batch: 0F0, 1B2, 1I2, 1W2, 0SEND_F0, 1RECV_F0, 1SEND_B0, 0RECV_B0");
  };
  std::string_view rest = cell;
  const std::optional<int> stage = take_number(rest);
  if (!stage) fail("does not begin with the number of a stage");
  const size_t length = std::min(rest.find_first_of("0123456789"), rest.size());
  const std::string_view action = rest.substr(0, length);
  rest.remove_prefix(length);
  if (std::find(std::begin(kIgnored), std::end(kIgnored), action) != std::end(kIgnored)) return std::nullopt;
  const auto* const word =
      std::find_if(std::begin(kWords), std::end(kWords), [&](const Word& w) { return w.text == action; });
  if (word == std::end(kWords))
    fail(action.empty() ? "names no action" : fmt::format("has the unknown action '{}'", action));
  const std::optional<int> micro_batch = take_number(rest);
  if (!micro_batch) fail("does not end with the number of a micro-batch");
  if (!rest.empty()) fail(fmt::format("has '{}' after the micro-batch", rest));
  if (*stage >= kMostCsvStages || *micro_batch >= kMostCsvMicroBatches) fail("has a number that is too large");
  return Instruction{.op = word->op, .stage = *stage, .micro_batch = *micro_batch};
}

/// Sets rank_of_stage: the row in which each stage appears. Peers of messages follow from it.
void place_stages(Schedule& schedule) {
  int num_stages = 0;
  for (const auto& list : schedule.ranks) {
    for (const Instruction& instruction : list) num_stages = std::max(num_stages, instruction.stage + 1);
  }
  schedule.rank_of_stage.assign(static_cast<size_t>(num_stages), -1);
  for (int rank = 0; rank < schedule.num_ranks; ++rank) {
    for (const Instruction& instruction : schedule.ranks[static_cast<size_t>(rank)]) {
      int& owner = schedule.rank_of_stage[static_cast<size_t>(instruction.stage)];
      if (owner >= 0 && owner != rank) {
        throw UsageError(fmt::format("stage {} is in row {} and in row {}", instruction.stage, owner + 1, rank + 1),
                         "a stage belongs to one rank");
      }
      owner = rank;
    }
  }
  for (int stage = 0; stage < num_stages; ++stage) {
    if (schedule.rank_of_stage[static_cast<size_t>(stage)] < 0) {
      throw UsageError(fmt::format("no row has stage {}, but there is a stage {}", stage, num_stages - 1),
                       "stages are numbered from 0 without gaps");
    }
  }
}

}  // namespace

std::string schedule_to_csv(const Schedule& schedule) {
  std::string csv;
  for (const std::vector<Instruction>& list : schedule.ranks) {
    std::vector<std::string> cells;
    for (const Instruction& instruction : list) {
      cells.push_back(fmt::format("{}{}{}", instruction.stage, word_of(instruction.op), instruction.micro_batch));
    }
    csv += join(cells, ",") + "\n";
  }
  return csv;
}

Schedule schedule_from_csv(std::string_view csv) {
  Schedule schedule{.num_ranks = 0, .num_micro_batches = 0};
  if (csv.starts_with("\xef\xbb\xbf")) csv.remove_prefix(3);  // byte-order mark, as spreadsheets write
  size_t row = 0, num_cells = 0;
  for (const std::string_view line : split(csv, '\n')) {
    ++row;
    std::vector<Instruction> list;
    size_t column = 0;
    for (std::string_view cell : split(line, ',')) {
      ++column;
      if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') cell = trim(cell.substr(1, cell.size() - 2));
      if (cell.empty()) continue;
      const std::optional<Instruction> instruction = parse_cell(cell, row, column);
      if (!instruction) continue;
      list.push_back(*instruction);
      ++num_cells;
      schedule.num_micro_batches = std::max(schedule.num_micro_batches, list.back().micro_batch + 1);
    }
    if (!list.empty()) schedule.ranks.push_back(std::move(list));
  }
  if (schedule.ranks.empty()) throw UsageError("the schedule is empty", "write one row per rank, such as 0F0,0B0");
  schedule.num_ranks = static_cast<int>(schedule.ranks.size());
  place_stages(schedule);
  const auto needed = static_cast<size_t>(schedule.num_stages()) * static_cast<size_t>(schedule.num_micro_batches);
  if (num_cells < 2 * needed) {
    throw UsageError(fmt::format("{} stages and {} micro-batches need {} computations, but there are {} cells",
                                 schedule.num_stages(), schedule.num_micro_batches, 2 * needed, num_cells),
                     "each stage needs a forward and a backward pass of each micro-batch, numbered from 0");
  }
  return schedule;
}

Schedule read_schedule(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) throw UsageError(fmt::format("there is no file {}", path));
  try {
    return schedule_from_csv(read_whole_file(path, kMostBytes));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", path, error.what()));
  }
}

Schedule schedule_of(const std::vector<Program>& programs) {
  const Program& first = programs.front();
  Schedule schedule{.num_ranks = static_cast<int>(programs.size()), .num_micro_batches = first.num_micro_batches};
  schedule.rank_of_stage = first.rank_of_stage;
  for (const Program& program : programs) {
    std::vector<Instruction>& list = schedule.ranks.emplace_back();
    for (const Instruction& i : program.instructions) {
      if (!word_of(i.op).empty()) list.push_back({.op = i.op, .stage = i.stage, .micro_batch = i.micro_batch});
    }
  }
  return schedule;
}

}  // namespace trireme
