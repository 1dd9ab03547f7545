// MPI's side of `trireme bench comm --compare mpi`: measures on command, as our own ranks do. Needs nothing of Trireme.
//
//   mpirun -np 2 trireme-peer-mpi          then type: all-reduce 65536 500
//
// Rank 0 reads "OPERATION BYTES ROUNDS" lines and answers "ok µs µs …", one time for each round, or "error …"; at the
// end of its input all ranks end. Idle ranks sleep, so that they take no core from whoever is measured meanwhile.
#include <mpi.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int kWarmUps = 3;
constexpr int kCommandTag = 1;
const char* const kOperations[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all"};

struct Command {
  int operation = -1;  ///< index in kOperations; -1: end
  int rounds = 0;
  long long bytes = 0;
};

/// One round each: what an operation reads is filled with 1, all meet, and the operation is timed.
class Measurement {
 public:
  Measurement(const Command& command, int rank, int size) : operation_(command.operation) {
    count_ = static_cast<int>(command.bytes / 4);
    block_ = std::max(count_ / size, 1);
    const int whole = block_ * size;
    const int in_counts[] = {count_, whole, block_, count_, whole}, out_counts[] = {0, block_, whole, 0, whole};
    in_.resize(static_cast<size_t>(in_counts[operation_]));
    out_.resize(static_cast<size_t>(out_counts[operation_]));
    own_ = operation_ == 3 && rank != 0 ? 0.f : 1.f;
    expected_ = operation_ < 2 ? static_cast<float>(size) : 1.f;
  }

  double round_us() {
    std::fill(in_.begin(), in_.end(), own_);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    perform();
    return (MPI_Wtime() - start) * 1e6;
  }

  bool is_right() const {
    const std::vector<float>& result = out_.empty() ? in_ : out_;
    return std::all_of(result.begin(), result.end(), [this](float value) { return value == expected_; });
  }

 private:
  void perform() {
    switch (operation_) {
      case 0:
        MPI_Allreduce(MPI_IN_PLACE, in_.data(), count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case 1:
        MPI_Reduce_scatter_block(in_.data(), out_.data(), block_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case 2:
        MPI_Allgather(in_.data(), block_, MPI_FLOAT, out_.data(), block_, MPI_FLOAT, MPI_COMM_WORLD);
        break;
      case 3:
        MPI_Bcast(in_.data(), count_, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
      case 4:
        MPI_Alltoall(in_.data(), block_, MPI_FLOAT, out_.data(), block_, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    }
  }

  int operation_, count_, block_;
  std::vector<float> in_, out_;
  float own_, expected_;
};

std::string run(const Command& command, int rank, int size) {
  Measurement measurement(command, rank, size);
  std::string answer = "ok";
  for (int i = 0; i < command.rounds + kWarmUps; ++i) {
    const double us = measurement.round_us();
    char text[32];
    std::snprintf(text, sizeof text, " %.3f", us);
    if (i >= kWarmUps) answer += text;
  }
  return measurement.is_right() ? answer : "error the result is wrong";
}

/// False at the end of the input.
bool read_command(Command& command) {
  char line[256], name[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    if (std::sscanf(line, "%63s %lld %d", name, &command.bytes, &command.rounds) == 3) {
      for (int i = 0; i < 5; ++i) {
        if (std::strcmp(name, kOperations[i]) == 0) command.operation = i;
      }
      if (command.operation >= 0 && command.bytes >= 4 && command.bytes / 4 <= 0x7fffffff) return true;
    }
    std::printf("error no such command: %s\n", std::strtok(line, "\n"));
    std::fflush(stdout);
    command = {};
  }
  return false;
}

void wait_for_command(Command& command) {
  int arrived = 0;
  while (MPI_Iprobe(0, kCommandTag, MPI_COMM_WORLD, &arrived, MPI_STATUS_IGNORE), arrived == 0) usleep(1000);
  MPI_Recv(&command, sizeof command, MPI_BYTE, 0, kCommandTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // should mpirun be killed, nothing stays behind
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == 0) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(version, &length);
    std::printf("ready %.*s\n", static_cast<int>(std::strcspn(version, ",\n")), version);
    std::fflush(stdout);
  }
  while (true) {
    Command command;
    if (rank == 0) {
      if (!read_command(command)) command = {};
      for (int r = 1; r < size; ++r) MPI_Send(&command, sizeof command, MPI_BYTE, r, kCommandTag, MPI_COMM_WORLD);
    } else {
      wait_for_command(command);
    }
    if (command.operation < 0) break;
    const std::string answer = run(command, rank, size);
    if (rank == 0) {
      std::printf("%s\n", answer.c_str());
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
}
