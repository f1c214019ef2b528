// A stand-in for a GPU under CuPy: the driver's entry points that CuPy looks up by name, and twins
// of the functions of CuPy's runtime binding, which `tests/devices/cuda/stand_in/__init__.py` puts in their
// place. Above it CuPy and cudml run unchanged. Memory is host memory, copies and fills happen,
// kernels do nothing; calls can be recorded, a launch with the bytes of its arguments. A call takes
// next to no time, so the host's time of a call can be measured over it; `proof/stand_in/` is the one
// over which kernels run, and in which each call goes through Python.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- What the tests set and read.

static struct {
  long num_devices, record_calls, resident_blocks, max_threads_of_kernel, compute_capability;
  long captured_stream, old_device, pending_events;
  long active_clusters, cluster_status;  // what the driver says of clusters, and its error
} settings = {2, 0, 2, 1024, 90, 0, -1, 0, 15, 0};

enum { kMaxParameters = 32 };
static int num_parameters;
static size_t parameter_sizes[kMaxParameters];

static char* record;
static size_t record_size, record_capacity;
static pthread_mutex_t record_lock = PTHREAD_MUTEX_INITIALIZER;

static void append(const char* text) {
  pthread_mutex_lock(&record_lock);
  size_t size = strlen(text);
  if (record_size + size + 1 > record_capacity) {
    record_capacity = 2 * (record_size + size + 1);
    record = realloc(record, record_capacity);
  }
  memcpy(record + record_size, text, size + 1);
  record_size += size;
  pthread_mutex_unlock(&record_lock);
}

#define CALLED(...)                                        \
  do {                                                     \
    if (settings.record_calls) {                           \
      char line[256];                                      \
      int used = snprintf(line, sizeof line, __VA_ARGS__); \
      snprintf(line + used, sizeof line - used, "\n");     \
      append(line);                                        \
    }                                                      \
  } while (0)

int stand_in_set(const char* name, long value) {
  if (!strcmp(name, "num_devices"))
    settings.num_devices = value;
  else if (!strcmp(name, "record_calls"))
    settings.record_calls = value;
  else if (!strcmp(name, "resident_blocks"))
    settings.resident_blocks = value;
  else if (!strcmp(name, "max_threads_of_kernel"))
    settings.max_threads_of_kernel = value;
  else if (!strcmp(name, "active_clusters"))
    settings.active_clusters = value;
  else if (!strcmp(name, "cluster_status"))
    settings.cluster_status = value;
  else if (!strcmp(name, "compute_capability"))
    settings.compute_capability = value;
  else if (!strcmp(name, "captured_stream"))
    settings.captured_stream = value;
  else if (!strcmp(name, "old_device"))
    settings.old_device = value;
  else if (!strcmp(name, "pending_events"))
    settings.pending_events = value;
  else
    return 1;
  return 0;
}

// The sizes of the parameters of the kernels launched from now on; a driver has them from the
// cubin.
void stand_in_set_parameters(int count, const size_t* sizes) {
  num_parameters = count;
  memcpy(parameter_sizes, sizes, count * sizeof(size_t));
}

const char* stand_in_record(void) { return record_size ? record : ""; }

void stand_in_clear(void) { record_size = 0; }

// ---- The state and the numbers of the device.

static __thread int current_device;

static int device_attribute(int attribute, int device) {
  static const struct {
    int attribute, value;
  } known[] = {
      {1, 1024},       {2, 1024},   {3, 1024},
      {4, 64},                                   // threads of a block, and along x, y, z
      {5, 2147483647}, {6, 65535},  {7, 65535},  // blocks of a grid along x, y, z
      {8, 49152},      {10, 32},    {12, 65536},
      {16, 132},                              // shared, warp, registers, multiprocessors
      {38, 52428800},  {39, 2048},  {41, 1},  // L2, threads of a multiprocessor, addressing
      {81, 233472},    {82, 65536}, {95, 1},
      {97, 232448},  // shared, registers, cooperative, opt-in shared
  };
  long capability = device == settings.old_device ? 70 : settings.compute_capability;
  if (attribute == 75) return (int)capability / 10;
  if (attribute == 76) return (int)capability % 10;
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
    if (known[i].attribute == attribute) return known[i].value;
  return 0;
}

// ---- The runtime, with the C signatures of CuPy's binding. `skip` is Cython's.

typedef struct Object Object;
extern Object _Py_NoneStruct;
extern void Py_IncRef(Object*);
extern Object* PyLong_FromLong(long);
extern Object* Py_BuildValue(const char*, ...);
extern int PyArg_ParseTuple(Object*, const char*, ...);

static Object* none(void) {
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}

Object* runtime__ensure_context(void) { return none(); }
int runtime_getDevice(int skip) { return current_device; }
int runtime_getDeviceCount(int skip) { return (int)settings.num_devices; }
int runtime_deviceGetAttribute(int attribute, int device, int skip) {
  return device_attribute(attribute, device);
}
int runtime_driverGetVersion(int skip) { return 13050; }
Object* runtime_setDevice(int device, int skip) {
  CALLED("setDevice %d", device);
  current_device = device;
  return none();
}
Object* runtime_deviceSynchronize(int skip) {
  CALLED("deviceSynchronize");
  return none();
}

// What was allocated and where: each block starts with the number of its device and its size, in
// the 512 bytes before it, and is one of a list.
typedef struct Block Block;
struct Block {
  Block* next;
  size_t size;
  int device;
};
enum { kBlockHead = 512 };
static Block* blocks;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

// The device of an address, -1 for one of no device.
int stand_in_device_of(intptr_t address) {
  int device = -1;
  pthread_mutex_lock(&blocks_lock);
  for (Block* block = blocks; block; block = block->next) {
    intptr_t start = (intptr_t)block + kBlockHead;
    if (start <= address && address < start + (intptr_t)block->size) device = block->device;
  }
  pthread_mutex_unlock(&blocks_lock);
  return device;
}

intptr_t runtime_malloc(size_t size, int skip) {
  CALLED("malloc %zu", size);
  void* memory = NULL;
  if (posix_memalign(&memory, 512, kBlockHead + size)) return 0;
  Block* block = memory;
  pthread_mutex_lock(&blocks_lock);
  *block = (Block){blocks, size, current_device};
  blocks = block;
  pthread_mutex_unlock(&blocks_lock);
  return (intptr_t)memory + kBlockHead;
}
intptr_t runtime_hostAlloc(size_t size, unsigned flags, int skip) {
  return runtime_malloc(size, skip);
}
Object* runtime_free(intptr_t address, int skip) {
  CALLED("free");
  if (!address) return none();
  Block* block = (Block*)(address - kBlockHead);
  pthread_mutex_lock(&blocks_lock);
  Block** place = &blocks;
  while (*place != block) place = &(*place)->next;
  *place = block->next;
  pthread_mutex_unlock(&blocks_lock);
  free(block);
  return none();
}
Object* runtime_freeHost(intptr_t address, int skip) { return runtime_free(address, skip); }
Object* runtime_memGetInfo(int skip) { return Py_BuildValue("(LL)", 1ll << 37, 1ll << 37); }
Object* runtime_memcpy(intptr_t to, intptr_t from, size_t size, int kind, int skip) {
  CALLED("memcpy %zu", size);
  memcpy((void*)to, (void*)from, size);
  return none();
}
Object* runtime_memcpyAsync(intptr_t to, intptr_t from, size_t size, int kind, intptr_t stream,
                            int skip) {
  CALLED("memcpyAsync %zu kind %d stream %ld device %d", size, kind, (long)stream, current_device);
  memcpy((void*)to, (void*)from, size);
  return none();
}
Object* runtime_memset(intptr_t to, int value, size_t size, int skip) {
  CALLED("memset %zu", size);
  memset((void*)to, value, size);
  return none();
}
Object* runtime_memsetAsync(intptr_t to, int value, size_t size, intptr_t stream, int skip) {
  CALLED("memsetAsync %d %zu stream %ld device %d", value, size, (long)stream, current_device);
  memset((void*)to, value, size);
  return none();
}

// A stream's handle comes again at once when it was destroyed; its number does not.
enum { kMaxStreams = 1024, kFirstHandle = 0x5000, kHandleStep = 16 };
static unsigned long long last_stream_id = 10;
static unsigned long long stream_ids[kMaxStreams];
static intptr_t destroyed_streams[kMaxStreams];
static int num_streams, num_destroyed_streams;
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;

intptr_t runtime_streamCreateWithPriority(unsigned flags, int priority, int skip) {
  CALLED("streamCreate");
  pthread_mutex_lock(&streams_lock);
  const intptr_t handle = num_destroyed_streams ? destroyed_streams[--num_destroyed_streams]
                                                : kFirstHandle + kHandleStep * num_streams++;
  const intptr_t number = (handle - kFirstHandle) / kHandleStep;
  if (number >= kMaxStreams) abort();
  stream_ids[number] = ++last_stream_id;
  pthread_mutex_unlock(&streams_lock);
  return handle;
}
int cuStreamGetId(intptr_t stream, unsigned long long* id) {
  static __thread unsigned long long of_thread;
  CALLED("cuStreamGetId");
  pthread_mutex_lock(&streams_lock);
  if (stream == 2 && !of_thread) of_thread = ++last_stream_id;
  const intptr_t number = (stream - kFirstHandle) / kHandleStep;
  const int is_own = number >= 0 && number < num_streams;  // else made up by a test
  *id = stream == 2 ? of_thread : is_own ? stream_ids[number] : (unsigned long long)stream << 32;
  pthread_mutex_unlock(&streams_lock);
  return 0;
}
intptr_t runtime_streamCreateWithFlags(unsigned flags, int skip) {
  return runtime_streamCreateWithPriority(flags, 0, skip);
}
intptr_t runtime_streamCreate(int skip) { return runtime_streamCreateWithPriority(0, 0, skip); }
Object* runtime_streamDestroy(intptr_t stream, int skip) {
  CALLED("streamDestroy");
  pthread_mutex_lock(&streams_lock);
  if (num_destroyed_streams < kMaxStreams) destroyed_streams[num_destroyed_streams++] = stream;
  pthread_mutex_unlock(&streams_lock);
  return none();
}
Object* runtime_streamSynchronize(intptr_t stream, int skip) {
  CALLED("streamSynchronize");
  return none();
}
int runtime_pointerGetMemoryType(intptr_t address, int skip) { return 0; }  // plain host memory
intptr_t runtime_eventCreateWithFlags(unsigned flags, int skip) {
  static intptr_t last = 0x6000;
  return __sync_add_and_fetch(&last, 1);
}
Object* runtime_eventDestroy(intptr_t event, int skip) { return none(); }
Object* runtime_eventQuery(intptr_t event, int skip) {
  return PyLong_FromLong(settings.pending_events ? 600 : 0);  // cudaErrorNotReady
}
Object* runtime_eventSynchronize(intptr_t event, int skip) {
  CALLED("eventSynchronize");
  return none();
}
Object* runtime_eventRecord(intptr_t event, intptr_t stream, int skip) {
  CALLED("eventRecord %ld stream %ld device %d", (long)event, (long)stream, current_device);
  return none();
}
// Every pair of events is 2.5 milliseconds apart.
float runtime_eventElapsedTime(intptr_t start, intptr_t stop, int skip) { return 2.5f; }
int runtime_streamIsCapturing(intptr_t stream, int skip) {
  CALLED("streamIsCapturing");
  return stream && stream == settings.captured_stream;
}

// What Python calls by name goes through these.
Object* call_getDevice(Object* self, Object* none_given) { return PyLong_FromLong(current_device); }
Object* call_getDeviceCount(Object* self, Object* none_given) {
  return PyLong_FromLong(settings.num_devices);
}
Object* call_deviceGetAttribute(Object* self, Object* arguments) {
  int attribute, device;
  if (!PyArg_ParseTuple(arguments, "ii", &attribute, &device)) return NULL;
  return PyLong_FromLong(device_attribute(attribute, device));
}
Object* call_setDevice(Object* self, Object* arguments) {
  int device;
  if (!PyArg_ParseTuple(arguments, "i", &device)) return NULL;
  return runtime_setDevice(device, 0);
}
Object* call_memcpyAsync(Object* self, Object* arguments) {
  long long to, from, size, stream;
  int kind;
  if (!PyArg_ParseTuple(arguments, "LLLiL", &to, &from, &size, &kind, &stream)) return NULL;
  return runtime_memcpyAsync(to, from, size, kind, stream, 0);
}
Object* call_memsetAsync(Object* self, Object* arguments) {
  long long to, size, stream;
  int value;
  if (!PyArg_ParseTuple(arguments, "LiLL", &to, &value, &size, &stream)) return NULL;
  return runtime_memsetAsync(to, value, size, stream, 0);
}

Object* call_streamWaitEvent(Object* self, Object* arguments) {
  long long stream, event;
  if (!PyArg_ParseTuple(arguments, "LL", &stream, &event)) return NULL;
  CALLED("streamWaitEvent %lld stream %lld", event, stream);
  return none();
}

Object* call_streamIsCapturing(Object* self, Object* arguments) {
  long long stream;
  if (!PyArg_ParseTuple(arguments, "L", &stream)) return NULL;
  return PyLong_FromLong(runtime_streamIsCapturing(stream, 0));
}

// ---- cuBLAS. A handle is a number; a product is only recorded.

static __thread int capture_mode;
int cublasCreate_v2(intptr_t* handle) {
  static intptr_t last = 0xB1A50;
  CALLED("cublasCreate_v2 device %d mode %d", current_device, capture_mode);
  *handle = __sync_add_and_fetch(&last, 16);
  return 0;
}
int cublasSetStream_v2(intptr_t handle, intptr_t stream) {
  CALLED("cublasSetStream_v2 %ld %ld", (long)handle, (long)stream);
  return 0;
}
int cublasSetWorkspace_v2(intptr_t handle, intptr_t workspace, size_t size) {
  CALLED("cublasSetWorkspace_v2 %ld %ld %zu", (long)handle, (long)workspace, size);
  return workspace % 256 ? 7 : 0;  // CUBLAS_STATUS_INVALID_VALUE
}
int cublasGemmEx(intptr_t handle, int op_a, int op_b, int m, int n, int k, const float* alpha,
                 intptr_t a, int type_a, int pitch_a, intptr_t b, int type_b, int pitch_b,
                 const float* beta, intptr_t c, int type_c, int pitch_c, int compute,
                 int algorithm) {
  CALLED("cublasGemmEx %ld %d %d %d %d %d %g %ld %d %d %ld %d %d %g %ld %d %d %d %d", (long)handle,
         op_a, op_b, m, n, k, *alpha, (long)a, type_a, pitch_a, (long)b, type_b, pitch_b, *beta,
         (long)c, type_c, pitch_c, compute, algorithm);
  return k > 1000 ? 13 : 0;  // CUBLAS_STATUS_EXECUTION_FAILED
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  int before = capture_mode;
  capture_mode = *mode;
  *mode = before;
  return 0;
}

// ---- The driver. A module is its number, a function its name.

typedef int Result;
enum { kSuccess = 0 };

// A function is its module's number and its name.
static int num_modules;
Result cuModuleLoadData(uintptr_t* module, const void* image) {
  CALLED("cuModuleLoadData device %d", current_device);
  *module = (uintptr_t)__sync_add_and_fetch(&num_modules, 1);
  return kSuccess;
}
Result cuModuleUnload(uintptr_t module) {
  CALLED("cuModuleUnload");
  return kSuccess;
}
Result cuModuleGetFunction(char** function, uintptr_t module, const char* name) {
  *function = malloc(strlen(name) + 32);
  sprintf(*function, "%lu %s", (unsigned long)module, name);
  return kSuccess;
}
Result cuFuncSetAttribute(const char* function, int attribute, int value) {
  CALLED("cuFuncSetAttribute %d %d device %d", attribute, value, current_device);
  return kSuccess;
}
Result cuFuncGetAttribute(int* value, int attribute, const char* function) {
  *value = attribute == 0 ? (int)settings.max_threads_of_kernel : 0;
  return kSuccess;
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const char* function,
                                                   int num_threads, size_t shared_bytes) {
  CALLED("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  *blocks = (int)settings.resident_blocks;
  return kSuccess;
}

// The start of CUlaunchConfig, and of CUlaunchAttribute with the value of a cluster's dimension.
typedef struct {
  int id, pad;
  unsigned cluster[16];
} Attribute;
typedef struct {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  const Attribute* attributes;
  unsigned num_attributes;
} Config;
Result cuOccupancyMaxActiveClusters(int* clusters, const char* function, const Config* config) {
  const Attribute* first = config->attributes;
  CALLED(
      "cuOccupancyMaxActiveClusters grid %u %u %u block %u %u %u shared %u attributes %u id %d "
      "size %u %u %u",
      config->grid[0], config->grid[1], config->grid[2], config->block[0], config->block[1],
      config->block[2], config->shared_bytes, config->num_attributes, first->id, first->cluster[0],
      first->cluster[1], first->cluster[2]);
  *clusters = (int)settings.active_clusters;
  return (int)settings.cluster_status;
}

static void record_launch(const char* call, const unsigned* shape, void* stream,
                          void** parameters) {
  const size_t* sizes = parameter_sizes;
  const int count = num_parameters;
  // Bytes of the line. Threads launch at the same time, so a line is written at once.
  size_t size = 512;
  for (int i = 0; i < count; ++i) size += 2 * sizes[i] + 1;
  char* line = malloc(size);
  char* end = line;
  end += sprintf(end, "%s grid %u %u %u block %u %u %u shared %u stream %ld device %d arguments",
                 call, shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6],
                 (long)(intptr_t)stream, current_device);
  for (int i = 0; i < count; ++i) {
    *end++ = ' ';
    for (size_t byte = 0; byte < sizes[i]; ++byte)
      end += sprintf(end, "%02x", ((unsigned char*)parameters[i])[byte]);
  }
  strcpy(end, "\n");
  append(line);
  free(line);
}

Result cuLaunchKernel(const char* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      void* stream, void** parameters, void** extra) {
  if (settings.record_calls) {
    unsigned shape[] = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes};
    record_launch(__func__, shape, stream, parameters);
  }
  return kSuccess;
}

Result cuLaunchCooperativeKernel(const char* function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared_bytes, void* stream,
                                 void** parameters) {
  if (settings.record_calls) {
    unsigned shape[] = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes};
    record_launch(__func__, shape, stream, parameters);
  }
  return kSuccess;
}

Result cuGetErrorString(int code, const char** text) {
  *text = "an error of the stand-in";
  return kSuccess;
}
Result cuGetErrorName(int code, const char** text) {
  *text = "STAND_IN_ERROR";
  return kSuccess;
}

// CuPy looks these up when it starts; cudml never comes to call them.
enum { kNotSupported = 801 };
Result cuCtxGetCurrent(void) { return kNotSupported; }
Result cuCtxSetCurrent(void) { return kNotSupported; }
Result cuCtxCreate_v2(void) { return kNotSupported; }
Result cuCtxDestroy_v2(void) { return kNotSupported; }
Result cuCtxGetDevice(void) { return kNotSupported; }
Result cuDevicePrimaryCtxRelease_v2(void) { return kNotSupported; }
Result cuModuleLoad(void) { return kNotSupported; }
Result cuModuleGetGlobal_v2(void) { return kNotSupported; }
Result cuLinkCreate_v2(void) { return kNotSupported; }
Result cuLinkAddData_v2(void) { return kNotSupported; }
Result cuLinkAddFile_v2(void) { return kNotSupported; }
Result cuLinkComplete(void) { return kNotSupported; }
Result cuLinkDestroy(void) { return kNotSupported; }
Result cuStreamGetCtx(void) { return kNotSupported; }
Result cuOccupancyMaxPotentialBlockSize(void) { return kNotSupported; }
