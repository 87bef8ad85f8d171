/* What cudnn-direct calls of cuDNN 9, the CUDA runtime and the driver, computed on the host.

   Written from the formulas of cuDNN's documentation of cudnnRNNForward. Memory is cudaMalloc's, full
   of NaN at first; an address outside of it, or too small a piece of it, is refused, and so is a call
   out of order. The weight space is laid out unlike any framework's: recurrent layers first, biases
   before matrices, gaps between. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000 };
enum { TANH = 1, LSTM = 2, GRU = 3 };
#define GAP 3 /* numbers between parts of the weight space */

static const char *last = "";
static int fail(int status, const char *why) { last = why; return status; }
#define NEED(condition) do { if (!(condition)) return fail(BAD_PARAM, #condition); } while (0)

/* ---- the runtime and the driver ---- */

static struct { char *at; size_t size; } blocks[4096];
static int block_count, device = -1;

static int held(const void *p, size_t size) {
    for (int i = 0; i < block_count; i++)
        if ((char *)p >= blocks[i].at && (char *)p + size <= blocks[i].at + blocks[i].size) return 1;
    return 0;
}
int cudaGetDeviceCount(int *count) { *count = 1; return 0; }
int cudaSetDevice(int number) { device = number; return number ? 101 : 0; }
int cudaMalloc(void **p, size_t size) {
    if (size > 1ull << 32) return 2;
    *p = malloc(size);
    memset(*p, 0xff, size);
    blocks[block_count].at = *p;
    blocks[block_count++].size = size;
    return 0;
}
int cudaFree(void *p) {
    for (int i = 0; i < block_count; i++)
        if (blocks[i].at == p) {
            free(p);
            blocks[i] = blocks[--block_count];
            return 0;
        }
    return 1;
}
int standInBlocks(void) { return block_count; }
int cudaMemcpy(void *to, const void *from, size_t size, int kind) {
    if (!held(kind == 1 ? to : from, size) || held(kind == 1 ? from : to, 1)) return 1;
    memcpy(to, from, size);
    return 0;
}
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
    return stream ? 1 : cudaMemcpy(to, from, size, kind);
}
int cudaMemset(void *p, int value, size_t size) {
    if (!held(p, size)) return 1;
    memset(p, value, size);
    return 0;
}
int cudaMemsetAsync(void *p, int value, size_t size, void *stream) {
    return stream ? 1 : cudaMemset(p, value, size);
}
int cudaMemGetInfo(size_t *unused, size_t *all) { *unused = 1; *all = 1ull << 32; return 0; }
int cudaDeviceSynchronize(void) { return 0; }
int cudaEventCreate(void **event) { *event = calloc(1, sizeof(struct timespec)); return 0; }
int cudaEventDestroy(void *event) { free(event); return 0; }
int cudaEventRecord(void *event, void *stream) { return clock_gettime(CLOCK_MONOTONIC, event); }
int cudaEventElapsedTime(float *ms, struct timespec *a, struct timespec *b) {
    *ms = (b->tv_sec - a->tv_sec) * 1e3 + (b->tv_nsec - a->tv_nsec) / 1e6;
    return 0;
}
int cudaRuntimeGetVersion(int *version) { *version = 12090; return 0; }
int cudaDriverGetVersion(int *version) { *version = 13000; return 0; }
const char *cudaGetErrorString(int error) { return error == 101 ? "invalid device ordinal" : "other"; }

int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *found, int ordinal) { *found = ordinal; return ordinal != 0; }
int cuDeviceTotalMem_v2(size_t *all, int which) { *all = 1ull << 32; return 0; }
int cuDeviceGetPCIBusId(char *id, int size, int which) { strncpy(id, "0000:02:00.0", size); return 0; }
int cuDeviceGetName(char *name, int size, int which) { strncpy(name, "Stand-in", size); return 0; }

/* ---- cuDNN: descriptors ---- */

size_t cudnnGetVersion(void) { return 92800; }
size_t cudnnGetCudartVersion(void) { return 12090; }
const char *cudnnGetErrorString(int status) {
    return status == BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM" : "CUDNN_STATUS_NOT_SUPPORTED";
}
void cudnnGetLastErrorString(char *text, size_t size) { strncpy(text, last, size); }

typedef struct { int count, lengths[8]; } Tensor;
typedef struct { int steps, batch, width; } Data;
typedef struct { int set; } Dropout;
typedef struct {
    int mode, directions, math, inputs, hidden, layers;
    int state; /* 1: forward of training ran; 2: backward of the data ran */
} Rnn;
typedef struct { int operation; } Operation;

#define CREATE(what, Type) int cudnnCreate##what(Type **made) { *made = calloc(1, sizeof(Type)); return OK; }
int cudnnCreate(void **handle) {
    if (device) return fail(1001, "no device was set");
    *handle = &device;
    return OK;
}
CREATE(TensorDescriptor, Tensor)
CREATE(RNNDataDescriptor, Data)
CREATE(DropoutDescriptor, Dropout)
CREATE(RNNDescriptor, Rnn)
CREATE(OpTensorDescriptor, Operation)
CREATE(ReduceTensorDescriptor, Operation)

int cudnnSetTensorNdDescriptor(Tensor *t, int type, int count, const int *lengths, const int *strides) {
    int packed = 1;
    NEED(type == 0 && count >= 3 && count <= 8);
    for (int i = count - 1; i >= 0; packed *= lengths[i--]) NEED(strides[i] == packed && lengths[i] > 0);
    t->count = count;
    memcpy(t->lengths, lengths, count * sizeof(int));
    return OK;
}
int cudnnGetTensorNdDescriptor(Tensor *t, int asked, int *type, int *count, int *lengths, int *strides) {
    NEED(asked >= t->count);
    *type = 0;
    *count = t->count;
    memcpy(lengths, t->lengths, t->count * sizeof(int));
    return OK;
}
static size_t numbers(const Tensor *t) {
    size_t n = 1;
    for (int i = 0; i < t->count; i++) n *= t->lengths[i];
    return n;
}
static void describe(Tensor *t, int rows, int columns) {
    t->count = 3;
    t->lengths[0] = 1, t->lengths[1] = rows, t->lengths[2] = columns;
}
int cudnnSetDropoutDescriptor(Dropout *d, void *handle, float dropout, void *states, size_t size,
                              unsigned long long seed) {
    NEED(handle == &device && dropout == 0);
    d->set = 1;
    return OK;
}
int cudnnSetRNNDescriptor_v8(Rnn *r, int algo, int mode, int bias, int direction, int input, int type,
                             int precision, int math, int32_t inputs, int32_t hidden, int32_t projected,
                             int32_t layers, Dropout *dropout, uint32_t flags) {
    NEED(algo == 0 && bias == 2 && input == 0 && type == 0 && precision == 0 && flags == 1);
    NEED(math == 0 || math == 3);
    NEED(mode == TANH || mode == LSTM || mode == GRU);
    NEED(dropout->set && projected == hidden && hidden > 0 && inputs > 0 && layers > 0);
    *r = (Rnn){mode, direction + 1, math, inputs, hidden, layers, 0};
    return OK;
}
int standInMath(const Rnn *r) { return r->math; }
int cudnnSetRNNDataDescriptor(Data *d, int type, int layout, int steps, int batch, int width,
                              const int *lengths, void *fill) {
    NEED(type == 0 && layout == 0);
    for (int i = 0; i < batch; i++) NEED(lengths[i] == steps);
    *d = (Data){steps, batch, width};
    return OK;
}

/* ---- the weight space: of every pseudo-layer the linear layers from the last to the first ---- */

static int gates(const Rnn *r) { return r->mode == LSTM ? 4 : r->mode == GRU ? 3 : 1; }
static int inputs_of(const Rnn *r, int pseudo) {
    return pseudo < r->directions ? r->inputs : r->directions * r->hidden;
}
static int columns(const Rnn *r, int pseudo, int id) {
    return id < gates(r) ? inputs_of(r, pseudo) : r->hidden;
}
static size_t start_of(const Rnn *r, int pseudo, int id) { /* of the bias; the matrix follows */
    size_t start = GAP;
    for (int p = 0; p < r->layers * r->directions; p++)
        for (int i = 2 * gates(r) - 1; i >= 0; i--) {
            if (p == pseudo && i == id) return start;
            start += (size_t)r->hidden * (1 + columns(r, p, i)) + 2 * GAP;
        }
    return start;
}
static const float *bias_of(const Rnn *r, const float *w, int pseudo, int id) {
    return w + start_of(r, pseudo, id);
}
static const float *matrix_of(const Rnn *r, const float *w, int pseudo, int id) {
    return bias_of(r, w, pseudo, id) + r->hidden + GAP;
}
int cudnnGetRNNWeightSpaceSize(void *handle, const Rnn *r, size_t *size) {
    NEED(handle == &device);
    *size = start_of(r, r->layers * r->directions, 0) * sizeof(float);
    return OK;
}
int cudnnGetRNNWeightParams(void *handle, const Rnn *r, int32_t pseudo, size_t size, const float *space,
                            int32_t id, Tensor *m, const float **matrix, Tensor *b, const float **bias) {
    NEED(handle == &device && held(space, size));
    NEED(pseudo >= 0 && pseudo < r->layers * r->directions && id >= 0 && id < 2 * gates(r));
    describe(m, r->hidden, columns(r, pseudo, id));
    describe(b, r->hidden, 1);
    *matrix = matrix_of(r, space, pseudo, id);
    *bias = bias_of(r, space, pseudo, id);
    return OK;
}

/* ---- the network. Kept of a pseudo-layer, by step and sequence: gates and their recurrent parts
        (each gates x hidden; after the way back the gradients of both), c and h of LSTM and others */

#define KEPT 10 /* times hidden: 4 gates, 4 recurrent parts, c, h */

static size_t kept_at(const Rnn *r, const Data *d, int pseudo, int t, int b) {
    return (((size_t)pseudo * d->steps + t) * d->batch + b) * KEPT * r->hidden;
}
int cudnnGetRNNTempSpaceSizes(void *handle, const Rnn *r, int mode, const Data *x, size_t *work,
                              size_t *reserve) {
    size_t bytes = kept_at(r, x, r->layers * r->directions, 0, 0) * sizeof(float);
    NEED(handle == &device && x->width == r->inputs);
    *work = mode ? 64 : bytes;
    *reserve = mode ? bytes : 0;
    return OK;
}
static float sigmoid(float x) { return 1 / (1 + expf(-x)); }
static float dot(const float *row, const float *x, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += row[i] * x[i];
    return sum;
}
/* The input of a pseudo-layer at (t, b), put together from both directions below. */
static void input_at(const Rnn *r, const Data *d, const float *x, const float *kept, int pseudo, int t,
                     int b, float *into) {
    int layer = pseudo / r->directions, h = r->hidden;
    if (!layer)
        memcpy(into, x + ((size_t)t * d->batch + b) * r->inputs, r->inputs * sizeof(float));
    else
        for (int i = 0; i < r->directions; i++)
            memcpy(into + i * h,
                   kept + kept_at(r, d, (layer - 1) * r->directions + i, t, b) + 9 * h, h * sizeof(float));
}
static int reversed_in_time(const Rnn *r, int pseudo) { return pseudo % r->directions; }
/* What was kept of the step before (t, b) in running order; NULL at the first. */
static float *before(const Rnn *r, const Data *d, float *kept, int pseudo, int t, int b) {
    int then = reversed_in_time(r, pseudo) ? t + 1 : t - 1;
    return then < 0 || then >= d->steps ? NULL : kept + kept_at(r, d, pseudo, then, b);
}
static void cell(const Rnn *r, const float *in, const float *rec, const float *c, const float *h, int j,
                 float *k) {
    int n = r->hidden;
    if (r->mode == LSTM) {
        float i = sigmoid(in[j] + rec[j]), f = sigmoid(in[n + j] + rec[n + j]);
        float g = tanhf(in[2 * n + j] + rec[2 * n + j]), o = sigmoid(in[3 * n + j] + rec[3 * n + j]);
        k[j] = i, k[n + j] = f, k[2 * n + j] = g, k[3 * n + j] = o;
        k[8 * n + j] = f * (c ? c[j] : 0) + i * g;
        k[9 * n + j] = o * tanhf(k[8 * n + j]);
    } else if (r->mode == GRU) {
        float reset = sigmoid(in[j] + rec[j]), z = sigmoid(in[n + j] + rec[n + j]);
        float fresh = tanhf(in[2 * n + j] + reset * rec[2 * n + j]);
        k[j] = reset, k[n + j] = z, k[2 * n + j] = fresh;
        k[9 * n + j] = (1 - z) * fresh + z * (h ? h[j] : 0);
    } else
        k[9 * n + j] = k[j] = tanhf(in[j] + rec[j]);
}
static void step(const Rnn *r, const Data *d, const float *x, const float *w, float *kept, int p, int t,
                 int b) {
    int n = r->hidden, g = gates(r), width = inputs_of(r, p);
    float *k = kept + kept_at(r, d, p, t, b), *past = before(r, d, kept, p, t, b);
    float *from = malloc((width + 8 * n) * sizeof(float)), *in = from + width, *rec = in + 4 * n;
    input_at(r, d, x, kept, p, t, b, from);
    for (int id = 0; id < g; id++)
        for (int j = 0; j < n; j++) {
            in[id * n + j] =
                dot(matrix_of(r, w, p, id) + (size_t)j * width, from, width) + bias_of(r, w, p, id)[j];
            rec[id * n + j] = bias_of(r, w, p, g + id)[j];
            if (past)
                rec[id * n + j] += dot(matrix_of(r, w, p, g + id) + (size_t)j * n, past + 9 * n, n);
        }
    for (int j = 0; j < n; j++) cell(r, in, rec, past ? past + 8 * n : NULL, past ? past + 9 * n : NULL, j, k);
    memcpy(k + 4 * n, rec, g * n * sizeof(float));
    free(from);
}
#define CHECKED_NETWORK                                                                              \
    NEED(handle == &device && y_desc->width == r->directions * r->hidden);                           \
    NEED(x_desc->steps == y_desc->steps && x_desc->batch == y_desc->batch);                          \
    NEED(held(lengths, x_desc->batch * sizeof(int32_t)) && lengths[0] == x_desc->steps);             \
    NEED(h_desc->count == 3 && h_desc->lengths[0] == r->layers * r->directions);                     \
    NEED(h_desc->lengths[1] == x_desc->batch && h_desc->lengths[2] == r->hidden && !hx);             \
    NEED(w_size >= start_of(r, r->layers * r->directions, 0) * sizeof(float) && held(w, w_size));    \
    NEED(held(x, (size_t)x_desc->steps * x_desc->batch * r->inputs * sizeof(float)));                \
    NEED(held(y, (size_t)x_desc->steps * x_desc->batch * y_desc->width * sizeof(float)));            \
    NEED(held(work, work_size) && work_size && held(reserve, reserve_size))

int cudnnRNNForward(void *handle, Rnn *r, int mode, const int32_t *lengths, const Data *x_desc,
                    const float *x, const Data *y_desc, float *y, const Tensor *h_desc, const void *hx,
                    void *hy, const Tensor *c_desc, const void *cx, void *cy, size_t w_size,
                    const float *w, size_t work_size, float *work, size_t reserve_size, float *reserve) {
    int n = r->hidden;
    float *kept = mode ? reserve : work;
    CHECKED_NETWORK;
    NEED(!hy && !cx && !cy && (mode || !reserve_size));
    NEED((mode ? reserve_size : work_size) >=
         kept_at(r, x_desc, r->layers * r->directions, 0, 0) * sizeof(float));
    for (int p = 0; p < r->layers * r->directions; p++)
        for (int i = 0; i < x_desc->steps; i++)
            for (int b = 0; b < x_desc->batch; b++)
                step(r, x_desc, x, w, kept, p, reversed_in_time(r, p) ? x_desc->steps - 1 - i : i, b);
    for (int t = 0; t < x_desc->steps; t++)
        for (int b = 0; b < x_desc->batch; b++)
            for (int i = 0; i < r->directions; i++)
                memcpy(y + ((size_t)t * x_desc->batch + b) * y_desc->width + i * n,
                       kept + kept_at(r, x_desc, (r->layers - 1) * r->directions + i, t, b) + 9 * n,
                       n * sizeof(float));
    r->state = mode;
    return OK;
}
/* k's gates and recurrent parts become the gradients of what W and R give; d_h and d_c go back. */
static void cell_back(const Rnn *r, float *k, const float *past, float *d_h, float *d_c, int j) {
    int n = r->hidden;
    float *in = k, *rec = k + 4 * n, dh = d_h[j], h = past ? past[9 * n + j] : 0;
    d_h[j] = 0;
    if (r->mode == LSTM) {
        float i = in[j], f = in[n + j], g = in[2 * n + j], o = in[3 * n + j], s = tanhf(k[8 * n + j]);
        float dc = d_c[j] + dh * o * (1 - s * s);
        in[j] = dc * g * i * (1 - i);
        in[n + j] = dc * (past ? past[8 * n + j] : 0) * f * (1 - f);
        in[2 * n + j] = dc * i * (1 - g * g);
        in[3 * n + j] = dh * s * o * (1 - o);
        d_c[j] = dc * f;
        for (int id = 0; id < 4; id++) rec[id * n + j] = in[id * n + j];
    } else if (r->mode == GRU) {
        float reset = in[j], z = in[n + j], fresh = in[2 * n + j];
        float raw = dh * (1 - z) * (1 - fresh * fresh);
        rec[j] = in[j] = raw * rec[2 * n + j] * reset * (1 - reset);
        rec[n + j] = in[n + j] = dh * (h - fresh) * z * (1 - z);
        in[2 * n + j] = raw, rec[2 * n + j] = raw * reset;
        d_h[j] = dh * z;
    } else
        rec[j] = in[j] = dh * (1 - in[j] * in[j]);
}
static void layer_back(const Rnn *r, const Data *d, const float *w, float *kept, int p, const float *d_y,
                       float *d_x) {
    int n = r->hidden, g = gates(r), width = inputs_of(r, p), out = r->directions * n;
    float *d_h = calloc(2 * n, sizeof(float)), *d_c = d_h + n;
    for (int b = 0; b < d->batch; b++) {
        memset(d_h, 0, 2 * n * sizeof(float));
        for (int i = d->steps - 1; i >= 0; i--) {
            int t = reversed_in_time(r, p) ? d->steps - 1 - i : i;
            size_t at = (size_t)t * d->batch + b;
            float *k = kept + kept_at(r, d, p, t, b), *past = before(r, d, kept, p, t, b);
            for (int j = 0; j < n; j++) {
                d_h[j] += d_y[at * out + reversed_in_time(r, p) * n + j];
                cell_back(r, k, past, d_h, d_c, j);
            }
            for (int id = 0; id < g; id++)
                for (int j = 0; j < n; j++) {
                    const float *row = matrix_of(r, w, p, id) + (size_t)j * width;
                    for (int e = 0; e < width; e++) d_x[at * width + e] += k[id * n + j] * row[e];
                    row = matrix_of(r, w, p, g + id) + (size_t)j * n;
                    for (int e = 0; e < n; e++) d_h[e] += k[(4 + id) * n + j] * row[e];
                }
        }
    }
    free(d_h);
}
int cudnnRNNBackwardData_v8(void *handle, Rnn *r, const int32_t *lengths, const Data *y_desc,
                            const float *y, const float *d_y, const Data *x_desc, float *x,
                            const Tensor *h_desc, const void *hx, const void *d_hy, void *d_hx,
                            const Tensor *c_desc, const void *cx, const void *d_cy, void *d_cx,
                            size_t w_size, const float *w, size_t work_size, void *work,
                            size_t reserve_size, float *reserve) {
    size_t places = (size_t)x_desc->steps * x_desc->batch, most = r->inputs + 2 * r->hidden;
    CHECKED_NETWORK;
    NEED(r->state == 1 && !d_hy && !d_hx && !cx && !d_cy && !d_cx);
    NEED(held(d_y, places * y_desc->width * sizeof(float)));
    NEED(reserve_size >= kept_at(r, x_desc, r->layers * r->directions, 0, 0) * sizeof(float));
    float *above = malloc(places * most * sizeof(float)), *below = malloc(places * most * sizeof(float));
    memcpy(above, d_y, places * y_desc->width * sizeof(float));
    for (int layer = r->layers - 1; layer >= 0; layer--) {
        memset(below, 0, places * most * sizeof(float));
        for (int i = 0; i < r->directions; i++)
            layer_back(r, x_desc, w, reserve, layer * r->directions + i, above, below);
        memcpy(above, below, places * most * sizeof(float));
    }
    memcpy(x, below, places * r->inputs * sizeof(float));
    free(above);
    free(below);
    r->state = 2;
    return OK;
}
int cudnnRNNBackwardWeights_v8(void *handle, Rnn *r, int add, const int32_t *lengths, const Data *x_desc,
                               const float *x, const Tensor *h_desc, const void *hx, const Data *y_desc,
                               const float *y, size_t w_size, float *w, size_t work_size, void *work,
                               size_t reserve_size, float *reserve) {
    int n = r->hidden, g = gates(r);
    CHECKED_NETWORK;
    NEED(r->state == 2 && add == 0);
    float *from = malloc((r->inputs + 2 * n) * sizeof(float));
    for (int p = 0; p < r->layers * r->directions; p++)
        for (int t = 0; t < x_desc->steps; t++)
            for (int b = 0; b < x_desc->batch; b++) {
                float *k = reserve + kept_at(r, x_desc, p, t, b), *past = before(r, x_desc, reserve, p, t, b);
                input_at(r, x_desc, x, reserve, p, t, b, from);
                for (int id = 0; id < 2 * g; id++) {
                    const float *with = id < g ? from : past ? past + 9 * n : NULL;
                    const float *d = id < g ? k + id * n : k + (4 + id - g) * n;
                    int width = columns(r, p, id);
                    for (int j = 0; j < n; j++) {
                        w[start_of(r, p, id) + j] += d[j];
                        for (int e = 0; with && e < width; e++)
                            w[start_of(r, p, id) + n + GAP + (size_t)j * width + e] += d[j] * with[e];
                    }
                }
            }
    free(from);
    r->state = 0;
    return OK;
}

/* ---- tensors ---- */

int cudnnSetOpTensorDescriptor(Operation *o, int operation, int type, int nan) {
    NEED(operation == 0 && type == 0);
    o->operation = operation;
    return OK;
}
int cudnnSetReduceTensorDescriptor(Operation *o, int operation, int type, int nan, int indices,
                                   int index_type) {
    NEED((operation == 5 || operation == 7) && type == 0 && !indices);
    o->operation = operation;
    return OK;
}
#define SAME(one, other) (one->count >= 4 && one->count == other->count && \
                          !memcmp(one->lengths, other->lengths, one->count * sizeof(int)))
#define HELD(t, p) held(p, numbers(t) * sizeof(float))
int cudnnAddTensor(void *handle, const float *alpha, const Tensor *a, const float *from,
                   const float *beta, const Tensor *c, float *into) {
    NEED(handle == &device && SAME(a, c) && HELD(a, from) && HELD(c, into));
    for (size_t i = 0; i < numbers(c); i++) into[i] = *alpha * from[i] + *beta * into[i];
    return OK;
}
int cudnnScaleTensor(void *handle, const Tensor *t, float *into, const float *alpha) {
    NEED(handle == &device && HELD(t, into));
    for (size_t i = 0; i < numbers(t); i++) into[i] *= *alpha;
    return OK;
}
int cudnnOpTensor(void *handle, const Operation *o, const float *alpha, const Tensor *a,
                  const float *from, const float *alpha2, const Tensor *b, const float *other,
                  const float *beta, const Tensor *c, float *into) {
    NEED(handle == &device && SAME(a, b) && SAME(a, c) && !*beta);
    NEED(HELD(a, from) && HELD(b, other) && HELD(c, into));
    for (size_t i = 0; i < numbers(c); i++) into[i] = *alpha * from[i] + *alpha2 * other[i];
    return OK;
}
int cudnnGetReductionWorkspaceSize(void *handle, const Operation *o, const Tensor *a, const Tensor *c,
                                   size_t *size) {
    *size = 32;
    return OK;
}
int cudnnReduceTensor(void *handle, const Operation *o, void *indices, size_t indices_size, void *work,
                      size_t work_size, const float *alpha, const Tensor *a, const float *from,
                      const float *beta, const Tensor *c, float *into) {
    double sum = 0;
    NEED(handle == &device && a->count >= 4 && numbers(c) == 1 && HELD(a, from) && HELD(c, into));
    NEED(!indices && !indices_size && work_size >= 32 && held(work, work_size) && !*beta);
    for (size_t i = 0; i < numbers(a); i++) sum += o->operation == 7 ? (double)from[i] * from[i] : from[i];
    *into = *alpha * (o->operation == 7 ? sqrt(sum) : sum / numbers(a));
    return OK;
}
