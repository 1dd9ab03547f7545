// The MPI transport: a plug-in, so that only jobs that ask for MPI load it.
#include "trireme/comm/transport/mpi_backend.h"

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// MPI counts are int; both ends cut longer spans in the same way.
constexpr size_t kLongest = size_t{1} << 30;

void check(int code, const char* doing) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(std::string("MPI could not ") + doing + ": " + std::string(text, static_cast<size_t>(length)));
}

// MPI without full thread support is called by one thread at a time; with it the lock is never taken.
std::recursive_mutex& mpi_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}
bool needs_lock = false;
std::atomic<bool> failed{false};
std::unique_lock<std::recursive_mutex> lock_mpi() {
  return needs_lock ? std::unique_lock(mpi_mutex()) : std::unique_lock<std::recursive_mutex>();
}

/// A frame's header and payload are MPI messages of their own, in that order. The header is copied so that the payload
/// can follow at once.
class MpiLink : public Link {
 public:
  MpiLink(MPI_Comm comm, int peer, int tag) : comm_(comm), peer_(peer), tag_(tag) {}
  ~MpiLink() override {
    // A peer that has gone never completes these; MPI_Finalize would wait for them, so they are let go.
    auto lock = lock_mpi();
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized) return;
    if (sending_ != MPI_REQUEST_NULL) MPI_Request_free(&sending_);
    if (receiving_ != MPI_REQUEST_NULL) {
      MPI_Cancel(&receiving_);
      MPI_Request_free(&receiving_);
    }
  }

  size_t write_some(ConstBytes data) override {
    auto lock = lock_mpi();
    if (sending_ == MPI_REQUEST_NULL) {
      send_bytes_ = std::min(data.size(), kLongest);
      guard(MPI_Isend(data.data(), static_cast<int>(send_bytes_), MPI_BYTE, peer_, tag_, comm_, &sending_));
    }
    int done = 0;
    guard(MPI_Test(&sending_, &done, MPI_STATUS_IGNORE));
    return done ? send_bytes_ : 0;
  }

  size_t read_some(Bytes data) override {
    auto lock = lock_mpi();
    if (receiving_ == MPI_REQUEST_NULL) {
      receive_bytes_ = std::min(data.size(), kLongest);
      guard(MPI_Irecv(data.data(), static_cast<int>(receive_bytes_), MPI_BYTE, peer_, tag_, comm_, &receiving_));
    }
    int done = 0;
    guard(MPI_Test(&receiving_, &done, MPI_STATUS_IGNORE));
    return done ? receive_bytes_ : 0;
  }
  bool keeps_messages() const override { return true; }

 private:
  void guard(int code) const {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw LinkBroken{peer_, std::string(text, static_cast<size_t>(length))};
  }

  MPI_Comm comm_;
  int peer_, tag_;
  MPI_Request sending_ = MPI_REQUEST_NULL, receiving_ = MPI_REQUEST_NULL;
  size_t send_bytes_ = 0, receive_bytes_ = 0;
};

class MpiBackendImpl : public MpiBackend {
 public:
  MpiBackendImpl() {
    int started = 0;
    MPI_Initialized(&started);
    int provided = MPI_THREAD_SINGLE;
    if (started) {
      MPI_Query_thread(&provided);
    } else {
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "start");
    }
    needs_lock = provided < MPI_THREAD_MULTIPLE;
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "make a communicator");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    int* bound = nullptr;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
    if (found) largest_tag_ = *bound;
    // At exit, not in a destructor: MPI must outlive every world, and a rank that failed must not wait for the others.
    if (!started) std::atexit([] { finalize(); });
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void broadcast(std::span<std::byte> data, int root) override {
    auto lock = lock_mpi();
    check(MPI_Bcast(data.data(), static_cast<int>(data.size()), MPI_BYTE, root, comm_), "broadcast");
  }

  std::unique_ptr<Link> make_link(int peer, uint64_t channel) override {
    // A group's stream has a tag of its own, made from the group's id. Should two ids meet in one tag, the fingerprints
    // in the frames tell.
    return std::make_unique<MpiLink>(comm_, peer, static_cast<int>(channel % static_cast<uint64_t>(largest_tag_)));
  }

  void set_failed() override { failed = true; }

  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    return std::string(text, static_cast<size_t>(length));
  }

 private:
  static void finalize() {
    if (failed) return;  // it would wait for ranks that are gone
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized) MPI_Finalize();
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, largest_tag_ = 32767;
};

}  // namespace
}  // namespace trireme

extern "C" trireme::MpiBackend* trireme_make_mpi_backend() { return new trireme::MpiBackendImpl(); }
