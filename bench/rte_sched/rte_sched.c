/* Nanoseconds per packet of DPDK's hierarchical scheduler (rte_sched) in memory: enqueue and dequeue, bursts of 32, a standing backlog, pipe and
 * queue uniformly random, no rate that limits. What `evenkeel-bench rte_sched` holds our schedulers against.
 *
 *     rte_sched PIPES BACKLOG BURSTS ROUNDS      (pipes: a power of two)
 *
 * One line per round: nanoseconds per packet. Only the two calls are timed: between them, off the clock, each packet that was dequeued is
 * given another place (pipe, queue), which is written into its mbuf, as classification would have done; then it is enqueued again.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_sched.h>

#define BURST 32
#define QUEUE 64
#define FRAME 60

static uint64_t state = 1;

static uint32_t below(uint32_t n)
{
	state = state * 6364136223846793005ull + 1;
	return (uint32_t)(((state >> 32) * n) >> 32);
}

static double now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void fail(const char *what)
{
	fprintf(stderr, "rte_sched: %s\n", what);
	exit(1);
}

static struct rte_sched_port *make(uint32_t pipes)
{
	/* 100 Gbit/s everywhere: credits are accounted for, and never lacking. */
	const uint64_t rate = 12500000000ull, bucket = 1000000000ull;
	struct rte_sched_subport_profile_params profile = { .tb_rate = rate, .tb_size = bucket, .tc_period = 10 };
	struct rte_sched_pipe_params pipe = { .tb_rate = rate, .tb_size = bucket, .tc_period = 10, .tc_ov_weight = 1 };
	struct rte_sched_subport_params subport = {
		.n_pipes_per_subport_enabled = pipes,
		.pipe_profiles = &pipe,
		.n_pipe_profiles = 1,
		.n_max_pipe_profiles = 1,
	};
	for (int i = 0; i < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; i++) {
		profile.tc_rate[i] = rate;
		pipe.tc_rate[i] = rate;
		subport.qsize[i] = QUEUE;
	}
	for (int i = 0; i < RTE_SCHED_BE_QUEUES_PER_PIPE; i++)
		pipe.wrr_weights[i] = 1;
	struct rte_sched_port_params params = {
		.name = "port",
		.socket = 0,
		.rate = rate,
		.mtu = 1522,
		.frame_overhead = 24,
		.n_subports_per_port = 1,
		.subport_profiles = &profile,
		.n_subport_profiles = 1,
		.n_max_subport_profiles = 1,
		.n_pipes_per_subport = pipes,
	};
	struct rte_sched_port *port = rte_sched_port_config(&params);
	if (!port)
		fail("no memory for the port");
	if (rte_sched_subport_config(port, 0, &subport, 0))
		fail("the subport is refused");
	for (uint32_t i = 0; i < pipes; i++)
		if (rte_sched_pipe_config(port, 0, i, 0))
			fail("a pipe is refused");
	return port;
}

static void place(struct rte_sched_port *port, struct rte_mbuf *m, uint32_t pipes)
{
	/* 12 strict classes with a queue each, and the best effort class with four: 16 queues per pipe. */
	uint32_t queue = below(16), class = queue < 12 ? queue : 12;
	rte_sched_port_pkt_write(port, m, 0, below(pipes), class, class == 12 ? queue - 12 : 0, RTE_COLOR_GREEN);
}

int main(int argc, char **argv)
{
	if (argc != 5)
		fail("PIPES BACKLOG BURSTS ROUNDS");
	uint32_t pipes = atoi(argv[1]), backlog = atoi(argv[2]), bursts = atoi(argv[3]), rounds = atoi(argv[4]);
	char *eal[] = { argv[0], "--no-huge", "-m", "2048", "--no-pci", "--no-telemetry", "--no-shconf", "-l", "0", "--log-level=3", NULL };
	if (rte_eal_init(10, eal) < 0)
		fail("DPDK does not start");
	struct rte_mempool *pool =
		rte_pktmbuf_pool_create("mbufs", backlog + 8 * BURST - 1, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (!pool)
		fail("no memory for mbufs");
	struct rte_sched_port *port = make(pipes);
	struct rte_mbuf *burst[BURST];
	uint64_t lost = 0;
	for (uint32_t done = 0; done < backlog; done += BURST) {
		if (rte_pktmbuf_alloc_bulk(pool, burst, BURST))
			fail("too few mbufs");
		for (int i = 0; i < BURST; i++) {
			rte_pktmbuf_append(burst[i], FRAME);
			place(port, burst[i], pipes);
		}
		lost += BURST - rte_sched_port_enqueue(port, burst, BURST);
	}
	for (uint32_t round = 0; round <= rounds; round++) {
		double begin = now_ns();
		uint64_t first = rte_rdtsc(), cycles = 0, packets = 0;
		for (uint32_t b = 0; b < bursts; b++) {
			uint64_t mark = rte_rdtsc();
			int n = rte_sched_port_dequeue(port, burst, BURST);
			cycles += rte_rdtsc() - mark;
			for (int i = 0; i < n; i++)
				place(port, burst[i], pipes);
			mark = rte_rdtsc();
			lost += n - rte_sched_port_enqueue(port, burst, n);
			cycles += rte_rdtsc() - mark;
			packets += n;
		}
		/* What a cycle of the counter takes, by the clock of the same round. */
		double time = cycles * ((now_ns() - begin) / (rte_rdtsc() - first));
		if (packets < bursts)
			fail("the backlog is gone");
		/* The first round warms up. */
		if (round > 0)
			printf("%.2f\n", time / packets);
	}
	if (lost > backlog / 100)
		fail("more than one packet in a hundred of the backlog was lost: the queues are too short for it");
	return 0;
}
