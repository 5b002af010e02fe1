/* SPDX-License-Identifier: BSD-3-Clause
 * digits.c - data-parallel training of a small neural network on 1797 real
 * hand-written digits. The first program to read:
 *
 *     tutti run -n 4 build/examples/digits
 *
 * Idea       Every rank has the same weights and sees its own share of each
 *            batch. The sum of all ranks' gradients, made by an all-reduce, is
 *            the gradient of the whole batch; every rank then takes the same
 *            step, so the weights stay equal, bit for bit.
 * Overlap    The gradient of the last layer is ready first. Its all-reduce
 *            runs while the layer before it is still being computed.
 * Network    64 pixels -> 96 (ReLU) -> 10 (softmax), momentum, some decay.
 * Result     Prints loss and accuracy on 360 digits never trained on; exits
 *            with 1 below 95 %, or if the ranks' weights differ by one bit. */
#include <tutti.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIXELS = 64, HIDDEN = 96, CLASSES = 10 };
enum { DIGITS = 1797, TEST = 360, TRAIN = DIGITS - TEST };
enum { BATCH = 64, EPOCHS = 30 };
static const float learning_rate = 0.08f;
static const float momentum = 0.9f;
static const float decay = 1e-4f;
static const double wanted_accuracy = 0.95;

typedef struct digit {
    float pixel[PIXELS]; /* 0 .. 1 */
    int label;
} digit;

/* Weights, gradients and velocities have this shape: nothing but floats, so
 * the collectives see each layer, and the whole, as one array. */
typedef struct model {
    struct {
        float weight[HIDDEN][PIXELS], bias[HIDDEN];
    } one;
    struct {
        float weight[CLASSES][HIDDEN], bias[CLASSES];
    } two;
} model;
enum {
    FLOATS_ONE = HIDDEN * (PIXELS + 1),
    FLOATS_TWO = CLASSES * (HIDDEN + 1)
};
enum { FLOATS = FLOATS_ONE + FLOATS_TWO };
_Static_assert(sizeof(model) == FLOATS * sizeof(float), "nothing but floats");

/* What the layers make of one digit. */
typedef struct activation {
    float hidden[HIDDEN];
    float chance[CLASSES]; /* of each class; adds up to 1 */
} activation;

static digit digits[DIGITS];
static model weights, gradient, velocity;
static tutti_comm *comm;

/* A failed communicator is final: say why, and leave. The other ranks learn
 * of it and do the same. */
static void check(tutti_err err, const char *doing)
{
    if (!err)
        return;
    const char *why = comm ? tutti_comm_message(comm) : tutti_last_message();
    fprintf(stderr, "digits: %s: %s (%s)\n", doing, tutti_strerror(err), why);
    exit(1);
}

/* ------------------------------------------------------------------ data -- */

/* The file named on the command line, or the one of the source tree. */
static FILE *open_data(const char *program, const char *path)
{
    if (path)
        return fopen(path, "r");
    const char *slash = strrchr(program, '/');
    int dir = slash ? (int)(slash + 1 - program) : 0;
    char name[4096];
    snprintf(name, sizeof(name), "%.*s../../examples/data/digits.csv", dir,
             program);
    FILE *file = fopen(name, "r");
    return file ? file : fopen("examples/data/digits.csv", "r");
}

/* Every fifth digit is kept for the test: those lie after the others. */
static void read_digits(const char *program, const char *path)
{
    FILE *file = open_data(program, path);
    if (!file) {
        fprintf(stderr, "digits: cannot find digits.csv; name it: "
                        "digits examples/data/digits.csv\n");
        exit(1);
    }
    for (int i = 0; i < DIGITS; i++) {
        digit *d = &digits[i % 5 ? i - i / 5 - 1 : TRAIN + i / 5];
        int n_read = 0;
        for (int p = 0; p < PIXELS; p++) {
            n_read += fscanf(file, "%f,", &d->pixel[p]);
            d->pixel[p] /= 16;
        }
        n_read += fscanf(file, "%d", &d->label);
        if (n_read != PIXELS + 1 || d->label < 0 || d->label >= CLASSES) {
            fprintf(stderr, "digits: line %d of the data is no digit\n", i + 1);
            exit(1);
        }
    }
    fclose(file);
}

/* xorshift: the same numbers on every rank, so all shuffle alike. */
static uint32_t random_bits(void)
{
    static uint32_t state = 2463534242u;
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static void shuffle(int *order, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(random_bits() % (uint32_t)(i + 1));
        int kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

/* --------------------------------------------------------------- network -- */

static void forward(const digit *d, activation *a)
{
    for (int h = 0; h < HIDDEN; h++) {
        float sum = weights.one.bias[h];
        for (int p = 0; p < PIXELS; p++)
            sum += weights.one.weight[h][p] * d->pixel[p];
        a->hidden[h] = sum > 0 ? sum : 0;
    }
    float total = 0;
    for (int c = 0; c < CLASSES; c++) {
        float sum = weights.two.bias[c];
        for (int h = 0; h < HIDDEN; h++)
            sum += weights.two.weight[c][h] * a->hidden[h];
        a->chance[c] = expf(sum);
        total += a->chance[c];
    }
    for (int c = 0; c < CLASSES; c++)
        a->chance[c] /= total;
}

/* How far each class's chance is off, for one digit of the batch. */
static float error_of(const digit *d, const activation *a, int c)
{
    return (a->chance[c] - (float)(c == d->label)) / BATCH;
}

/* Adds the digit's part to the gradient of the last layer. */
static void backward_two(const digit *d, const activation *a)
{
    for (int c = 0; c < CLASSES; c++) {
        float error = error_of(d, a, c);
        gradient.two.bias[c] += error;
        for (int h = 0; h < HIDDEN; h++)
            gradient.two.weight[c][h] += error * a->hidden[h];
    }
}

/* And to that of the first layer, through the weights of the last. */
static void backward_one(const digit *d, const activation *a)
{
    for (int h = 0; h < HIDDEN; h++) {
        if (a->hidden[h] <= 0)
            continue;
        float error = 0;
        for (int c = 0; c < CLASSES; c++)
            error += error_of(d, a, c) * weights.two.weight[c][h];
        gradient.one.bias[h] += error;
        for (int p = 0; p < PIXELS; p++)
            gradient.one.weight[h][p] += error * d->pixel[p];
    }
}

/* Random weights on rank 0, which everybody gets. */
static void start_weights(void)
{
    float *w = (float *)&weights;
    for (int i = 0; i < FLOATS; i++) {
        float uniform = (float)random_bits() / 4294967296.0f - 0.5f;
        w[i] = uniform * 2 * sqrtf(i < FLOATS_ONE ? 6.0f / PIXELS : 1.0f / 16);
    }
    memset(weights.one.bias, 0, sizeof(weights.one.bias));
    memset(weights.two.bias, 0, sizeof(weights.two.bias));
    check(tutti_broadcast(comm, &weights, &weights, FLOATS, TUTTI_F32, 0, NULL,
                          NULL),
          "broadcast of the weights");
}

static void update(void)
{
    float *w = (float *)&weights;
    float *g = (float *)&gradient;
    float *v = (float *)&velocity;
    for (int i = 0; i < FLOATS; i++) {
        v[i] = momentum * v[i] - learning_rate * (g[i] + decay * w[i]);
        w[i] += v[i];
    }
}

/* -------------------------------------------------------------- training -- */

/* One step on a batch. `share` holds this rank's n digits of it. Returns the
 * sum of their losses. */
static double train_batch(const int *share, int n)
{
    static activation a[BATCH];
    double loss = 0;
    memset(&gradient, 0, sizeof(gradient));
    for (int i = 0; i < n; i++) {
        const digit *d = &digits[share[i]];
        forward(d, &a[i]);
        backward_two(d, &a[i]);
        loss -= log(a[i].chance[d->label] + 1e-9);
    }
    tutti_request *two_done;
    check(tutti_all_reduce(comm, &gradient.two, &gradient.two, FLOATS_TWO,
                           TUTTI_F32, TUTTI_SUM, NULL, &two_done),
          "all-reduce of the last layer");
    for (int i = 0; i < n; i++) /* meanwhile */
        backward_one(&digits[share[i]], &a[i]);
    tutti_request *one_done;
    check(tutti_all_reduce(comm, &gradient.one, &gradient.one, FLOATS_ONE,
                           TUTTI_F32, TUTTI_SUM, NULL, &one_done),
          "all-reduce of the first layer");
    check(tutti_wait(two_done), "all-reduce of the last layer");
    check(tutti_wait(one_done), "all-reduce of the first layer");
    update();
    return loss;
}

/* One pass over the training digits; returns this rank's sum of losses. */
static double train_epoch(int *order, int rank, int n_ranks)
{
    double loss = 0;
    shuffle(order, TRAIN);
    for (int batch = 0; batch + BATCH <= TRAIN; batch += BATCH) {
        int begin = BATCH * rank / n_ranks;
        int end = BATCH * (rank + 1) / n_ranks;
        loss += train_batch(order + batch + begin, end - begin);
    }
    return loss;
}

/* The share of the test digits that is recognised; each rank looks at some. */
static double test_accuracy(int rank, int n_ranks)
{
    int32_t right = 0;
    for (int i = TRAIN + rank; i < DIGITS; i += n_ranks) {
        activation a;
        forward(&digits[i], &a);
        int best = 0;
        for (int c = 1; c < CLASSES; c++)
            best = a.chance[c] > a.chance[best] ? c : best;
        right += best == digits[i].label;
    }
    check(tutti_all_reduce(comm, &right, &right, 1, TUTTI_I32, TUTTI_SUM, NULL,
                           NULL),
          "all-reduce of the test");
    return (double)right / TEST;
}

/* True when every rank holds the same bits: then the least and the greatest
 * of the ranks' values are equal, for each weight seen as an integer. */
static bool weights_are_equal(uint64_t *hash)
{
    static uint32_t least[FLOATS], greatest[FLOATS];
    check(tutti_all_reduce(comm, &weights, least, FLOATS, TUTTI_U32, TUTTI_MIN,
                           NULL, NULL),
          "comparing the weights");
    check(tutti_all_reduce(comm, &weights, greatest, FLOATS, TUTTI_U32,
                           TUTTI_MAX, NULL, NULL),
          "comparing the weights");
    *hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < sizeof(least); i++)
        *hash = (*hash ^ ((unsigned char *)least)[i]) * UINT64_C(0x100000001b3);
    return memcmp(least, greatest, sizeof(least)) == 0 &&
           memcmp(least, &weights, sizeof(least)) == 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* lines appear as they are printed */
    read_digits(argv[0], argc > 1 ? argv[1] : NULL);
    check(tutti_comm_create(NULL, &comm), "start");
    int rank = tutti_comm_rank(comm);
    int n_ranks = tutti_comm_size(comm);
    static int order[TRAIN];
    for (int i = 0; i < TRAIN; i++)
        order[i] = i;
    start_weights();

    double accuracy = 0;
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        double loss = train_epoch(order, rank, n_ranks);
        check(tutti_all_reduce(comm, &loss, &loss, 1, TUTTI_F64, TUTTI_SUM,
                               NULL, NULL),
              "all-reduce of the loss");
        accuracy = test_accuracy(rank, n_ranks);
        if (rank == 0)
            printf("epoch %2d  loss %.4f  test accuracy %.2f %%\n", epoch,
                   loss / (TRAIN / BATCH * BATCH), 100 * accuracy);
    }

    uint64_t hash;
    bool is_equal = weights_are_equal(&hash);
    bool is_good = accuracy >= wanted_accuracy;
    if (rank == 0 && is_equal)
        printf("weights of all %d ranks are bit-identical (hash %016llx)\n",
               n_ranks, (unsigned long long)hash);
    if (!is_equal)
        fprintf(stderr, "digits: the weights of the ranks differ\n");
    if (rank == 0 && !is_good)
        fprintf(stderr, "digits: accuracy is below %.0f %%\n",
                100 * wanted_accuracy);
    tutti_comm_destroy(comm);
    return is_equal && is_good ? 0 : 1;
}
