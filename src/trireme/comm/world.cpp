#include "trireme/comm/world.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <latch>
#include <sstream>
#include <thread>

#include "trireme/base/fault.h"
#include "trireme/base/host.h"
#include "trireme/base/log.h"
#include "trireme/base/sha256.h"
#include "trireme/comm/communicator_impl.h"
#include "trireme/comm/control/control_failure.h"
#include "trireme/comm/record/flight_dump.h"
#include "trireme/comm/transport/mpi_backend.h"
#include "trireme/comm/transport/tcp_link.h"

namespace trireme {
namespace {

constexpr auto kOpenTimeout = std::chrono::seconds(30);

std::string link_target(const char* path) {
  char target[128] = {};
  const ssize_t n = readlink(path, target, sizeof target - 1);
  return n > 0 ? std::string(target, static_cast<size_t>(n)) : std::string();
}

/// Two processes share memory through /proc when they see the same processes. Network namespaces count as hosts, too.
std::string host_id() {
  if (const char* id = std::getenv("TRIREME_HOST_ID")) return id;
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot + link_target("/proc/self/ns/pid") + link_target("/proc/self/ns/net");
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

uint64_t random_word() {
  uint64_t word = 0;
  fill_random(std::as_writable_bytes(std::span(&word, 1)));
  return word;
}

/// Under mpirun nobody says where rank 0 listens: rank 0 opens a port and tells the others, with the token, over MPI.
void agree_over_mpi(LaunchEnvironment& environment, MpiBackend& mpi, Socket& listener) {
  if (environment.size > 1 && environment.size != mpi.size()) {
    throw UsageError(fmt::format("the job has {} ranks, but MPI knows of {}", environment.size, mpi.size()),
                     "start it with mpirun, or do without TRIREME_TRANSPORT=mpi");
  }
  environment.rank = mpi.rank();
  environment.size = mpi.size();
  if (!environment.master_address.empty() && !environment.token.empty()) return;
  struct {
    char address[64];
    uint16_t port;
    char token[65], job[33];
  } told{};
  if (environment.rank == 0) {
    std::string address = "127.0.0.1";
    if (const char* bind = std::getenv("TRIREME_BIND")) {
      address = bind;
    } else if (environment.local_size < environment.size) {
      ifaddrs* interfaces = nullptr;
      getifaddrs(&interfaces);
      for (const ifaddrs* i = interfaces; i != nullptr; i = i->ifa_next) {
        if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_LOOPBACK)) continue;
        char text[INET_ADDRSTRLEN] = {};
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text, sizeof text);
        address = text;
        break;
      }
      freeifaddrs(interfaces);
    }
    listener = listen_on(address, 0, 4096);
    std::strncpy(told.address, address.c_str(), sizeof told.address - 1);
    told.port = local_address(listener).port;
    const std::string token =
        fmt::format("{:016x}{:016x}{:016x}{:016x}", random_word(), random_word(), random_word(), random_word());
    const std::string job = fmt::format("{:016x}{:016x}", random_word(), random_word());
    std::memcpy(told.token, token.c_str(), 64);
    std::memcpy(told.job, job.c_str(), 32);
  }
  mpi.broadcast(std::as_writable_bytes(std::span(&told, 1)), 0);
  environment.master_address = told.address;
  environment.master_ports = {told.port};
  environment.token = told.token;
  environment.job = told.job;
  if (environment.rank == 0) {
    environment.bind_address = told.address;
    environment.listen_fd = listener.fd();
  }
}

// What ranks tell each other when they join: where their memory is, and (rank 0) what things cost.
std::string make_blob(const std::optional<HostSharedHeap::Ticket>& ticket, const Tuner& tuner, bool with_tuner) {
  std::string blob = ticket ? fmt::format("{} {} {}\n", ticket->pid, ticket->fd, ticket->secret) : "-\n";
  if (with_tuner) blob += tuner.serialize();
  return blob;
}

std::optional<HostSharedHeap::Ticket> ticket_in(const std::string& blob) {
  HostSharedHeap::Ticket ticket;
  std::istringstream in(blob);
  in >> ticket.pid >> ticket.fd >> ticket.secret;
  if (in.fail()) return std::nullopt;
  return ticket;
}

std::string name_of_transport(const RankContext& context, const std::string& remote) {
  if (context.hosts.num_hosts() == 1) return "shared memory";
  return context.hosts.num_hosts() < context.size ? "shared memory + " + remote : remote;
}

/// The control plane of ranks that are threads: they live and fail together.
class ThreadControl : public ControlPlane {
 public:
  struct Common {
    std::vector<Member> members;
    control::FirstFailure failure;
    std::vector<RankProgress> progress;
    explicit Common(int size) : progress(static_cast<size_t>(size)) {
      for (int r = 0; r < size; ++r) members.push_back({r, host_name(), "", getpid(), "", 0, ""});
    }
  };

  ThreadControl(std::shared_ptr<Common> common, int rank) : common_(std::move(common)), rank_(rank) {}

  const std::vector<Member>& members() const override { return common_->members; }
  RankProgress& progress() override { return common_->progress[static_cast<size_t>(rank_)]; }
  const Failure* failure() const noexcept override { return common_->failure.first(); }
  void report(const Failure& failure) noexcept override { common_->failure.set(failure); }
  std::vector<RankStatus> survey(Deadline) override {
    std::vector<RankStatus> statuses;
    for (size_t r = 0; r < common_->progress.size(); ++r) {
      const RankProgress& p = common_->progress[r];
      statuses.push_back(
          {static_cast<int>(r), 0, p.group.load(), p.sequence.load(), p.step.load(), p.operation.load()});
    }
    return statuses;
  }
  Socket connect(int, uint64_t, Deadline) override { throw Error("ranks that are threads have no connections"); }
  std::optional<Socket> accept(int, uint64_t) override { return std::nullopt; }
  void leave() noexcept override {}

 private:
  std::shared_ptr<Common> common_;
  int rank_;
};

}  // namespace

struct World::Impl {
  std::shared_ptr<RankContext> context;
  int local_rank = 0, local_size = 1;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<FlightDump> flight_dump;
  MpiBackend* mpi = nullptr;
  bool left = false;
  int exceptions_before = INT_MAX;  ///< under way when this process joined

  ~Impl() {
    if (!context || !context->control) {  // join() has failed
      if (mpi != nullptr) mpi->set_failed();
      return;
    }
    if (!left && std::uncaught_exceptions() > exceptions_before) {
      // The others must not wait for a rank that will not come.
      context->control->report(
          {context->rank, context->describe(context->rank) + " left the job because of an exception of its own"});
    }
    if (mpi != nullptr && context->control->failure() != nullptr) mpi->set_failed();
    flight_dump.reset();
    communicator.reset();
    context->control->leave();
  }
};

World World::join(const WorldOptions& options) {
  LaunchEnvironment environment = read_launch_environment();
  std::string transport = options.transport;
  if (const char* name = std::getenv("TRIREME_TRANSPORT"); name != nullptr && *name != '\0') transport = name;
  if (transport != "auto" && transport != "tcp" && transport != "mpi") {
    throw UsageError(fmt::format("there is no transport called {}", transport),
                     "TRIREME_TRANSPORT is auto (shared memory inside a host, TCP between hosts), tcp or mpi");
  }
  auto impl = std::make_unique<Impl>();
  impl->context = std::make_shared<RankContext>();
  RankContext& context = *impl->context;
  context.call_timeout = options.call_timeout;

  Socket listener;  // closed here once the control plane has its own copy of the descriptor
  if (transport == "mpi" || (environment.launcher == Launcher::kMpi && environment.master_address.empty())) {
    impl->mpi = &open_mpi_backend();
    agree_over_mpi(environment, *impl->mpi, listener);
  }
  context.rank = environment.rank;
  context.size = environment.size;
  set_log_rank(environment.rank);
  set_fault_rank(environment.rank);

  const std::string remote = transport == "mpi" ? "mpi" : "tcp";
  const bool shares_memory = transport == "auto" && environment.size > 1;
  Tuner tuner(ClusterFile::load_or_defaults(), remote);
  Member self;
  self.rank = environment.rank;
  self.host_name = host_name();
  self.host_id = shares_memory ? host_id() : fmt::format("{}#{}", host_id(), environment.rank);
  self.pid = getpid();
  HostSharedHeap* heap = nullptr;
  std::optional<HostSharedHeap::Ticket> ticket;
  if (shares_memory) {
    auto owned = std::make_unique<HostSharedHeap>(environment.size, random_word());
    heap = owned.get();
    ticket = heap->ticket();
    context.space = std::move(owned);
  } else {
    context.space = std::make_unique<ThreadSpace>(std::make_shared<ThreadSpace::FixedAreas>(1));
  }
  self.blob = make_blob(ticket, tuner, environment.rank == 0);

  ControlOptions control_options;
  control_options.join_timeout = options.join_timeout;
  context.control = ControlPlane::join(environment, self, control_options);
  listener.release();

  const std::vector<Member>& members = context.control->members();
  std::vector<std::string> ids;
  std::vector<std::optional<HostSharedHeap::Ticket>> tickets;
  for (const Member& member : members) {
    ids.push_back(member.host_id);
    tickets.push_back(member.host_id == self.host_id ? ticket_in(member.blob) : std::nullopt);
  }
  context.hosts = Topology::from_names(ids);
  for (std::string& id : ids) id = id.substr(0, id.find('#'));
  context.machines = Topology::from_names(ids);
  if (heap != nullptr) heap->set_peers(std::move(tickets), environment.rank);
  const std::string& costs = members[0].blob;
  context.tuner = environment.size == 1 ? tuner : Tuner::parse(costs.substr(costs.find('\n') + 1));
  if (impl->mpi != nullptr && transport == "mpi") {
    context.make_remote_link = [mpi = impl->mpi](int peer, uint64_t channel) { return mpi->make_link(peer, channel); };
  } else {
    context.make_remote_link = [control = context.control.get()](int peer, uint64_t channel) {
      return make_tcp_link(*control, peer, channel, kOpenTimeout);
    };
  }
  // Ranks of this machine compete for its cores, whether they share memory or not.
  int neighbours = 0;
  for (const Member& member : members) {
    neighbours += member.host_id.substr(0, 36) == self.host_id.substr(0, 36);
  }
  context.cores_are_scarce = neighbours > usable_cores();
  context.transport = environment.size == 1 ? "alone" : name_of_transport(context, remote);
  impl->local_rank = shares_memory ? context.hosts.local_rank(context.rank) : environment.local_rank;
  impl->local_size = shares_memory ? context.hosts.local_size(context.rank) : environment.local_size;
  impl->communicator = make_world_communicator(impl->context);
  impl->flight_dump = FlightDump::start_if_wanted(impl->context);
  impl->exceptions_before = std::uncaught_exceptions();
  return World(std::move(impl));
}

World::World(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
World::World(World&&) noexcept = default;
World::~World() = default;

int World::rank() const { return impl_->context->rank; }
int World::size() const { return impl_->context->size; }
int World::local_rank() const { return impl_->local_rank; }
int World::local_size() const { return impl_->local_size; }
Communicator& World::comm() { return *impl_->communicator; }
std::string World::transport() const { return impl_->context->transport; }

void World::set_step(uint64_t step) {
  impl_->context->control->progress().step.store(step, std::memory_order_relaxed);
  set_fault_step(step);
}

void World::leave() {
  if (impl_->left) return;
  // By messages, a disagreement of the past may show only now, at one rank, when others are through already: that one
  // does not come to the second barrier.
  impl_->communicator->barrier();
  impl_->communicator->barrier();
  impl_->left = true;
  impl_->context->control->leave();
}

void run_as_threads(int num_ranks, const std::function<void(World&)>& body, const WorldOptions& options) {
  if (num_ranks < 1) throw UsageError(fmt::format("a world cannot have {} ranks", num_ranks));
  auto common = std::make_shared<ThreadControl::Common>(num_ranks);
  auto areas = std::make_shared<ThreadSpace::FixedAreas>(num_ranks);
  const Tuner tuner(ClusterFile::load_or_defaults(), "tcp");
  // Contexts outlive all threads: a rank that has ended may still be read by slower peers.
  std::vector<std::shared_ptr<RankContext>> contexts;
  for (int r = 0; r < num_ranks; ++r) {
    auto context = std::make_shared<RankContext>();
    context->rank = r;
    context->size = num_ranks;
    context->control = std::make_unique<ThreadControl>(common, r);
    context->space = std::make_unique<ThreadSpace>(areas);
    context->hosts = context->machines = Topology::one_host(num_ranks);
    context->transport = "threads";
    context->call_timeout = options.call_timeout;
    context->cores_are_scarce = num_ranks > usable_cores();
    context->tuner = tuner;
    contexts.push_back(std::move(context));
  }
  std::vector<std::exception_ptr> errors(static_cast<size_t>(num_ranks));
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < num_ranks; ++r) {
      threads.emplace_back([&, r] {
        try {
          set_fault_rank(r);
          auto impl = std::make_unique<World::Impl>();
          impl->context = contexts[static_cast<size_t>(r)];
          impl->local_rank = r;
          impl->local_size = num_ranks;
          impl->communicator = make_world_communicator(impl->context);
          World world(std::move(impl));
          body(world);
        } catch (const std::exception& error) {
          errors[static_cast<size_t>(r)] = std::current_exception();
          common->failure.set({r, fmt::format("rank {} failed: {}", r, error.what())});
        } catch (...) {
          errors[static_cast<size_t>(r)] = std::current_exception();
          common->failure.set({r, fmt::format("rank {} failed", r)});
        }
      });
    }
  }
  for (const auto& context : contexts) context->sweep_retired(true);
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace trireme
