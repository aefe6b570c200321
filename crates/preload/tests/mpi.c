/* Stands for an MPI library (-DLIBRARY) and for a program that loads it locally, as Python's modules do. The library's
 * files have a view that begins at byte 1000 with elements of 4 bytes. */
#ifdef LIBRARY
static long long position;
int PMPI_File_open(int comm, const char *name, int mode, int info, void **file) { *file = &position; return 0; }
int PMPI_File_close(void **file) { *file = 0; return 0; }
int PMPI_File_get_position(void *file, long long *at) { *at = position; return 0; }
int PMPI_File_get_byte_offset(void *file, long long at, long long *bytes) { *bytes = 1000 + 4 * at; return 0; }
int PMPI_Type_size(int type, int *size) { *size = type; return 0; }
int PMPI_File_write_at(void *file, long long at, void *buffer, int count, int type, void *status) { return at == 13 ? 5 : 0; }
int PMPI_File_write_at_c(void *file, long long at, void *buffer, long long count, int type, void *status) { return 0; }
int PMPI_File_read_all(void *file, void *buffer, int count, int type, void *status) { position += count; return 0; }
int PMPI_File_iread(void *file, void *buffer, int count, int type, int *request) { *request = 1; position += count; return 0; }
#else
#include <assert.h>
#include <dlfcn.h>
/* Filled from the library or from what stands before it, as the loader binds a module's symbols: the global scope first. */
#define USE(result, name, ...) result (*name)(__VA_ARGS__) = dlsym(RTLD_DEFAULT, #name); assert(name)
int main(int argc, char **argv) {
    assert(dlopen(argv[1], RTLD_NOW | RTLD_LOCAL));
    USE(int, MPI_File_open, int, const char *, int, int, void **);
    USE(int, MPI_File_close, void **);
    USE(int, MPI_File_write_at, void *, long long, void *, int, int, void *);
    USE(int, MPI_File_write_at_c, void *, long long, void *, long long, int, void *);
    USE(int, MPI_File_read_all, void *, void *, int, int, void *);
    USE(int, MPI_File_iread, void *, void *, int, int, int *);
    USE(int, MPI_File_write_shared, void *, void *, int, int, void *);
    void *file;
    int request;
    char buffer[1];
    assert(MPI_File_open(1, "ufs:/data/shared", 9, 0, &file) == 0);
    assert(MPI_File_write_at(file, 10, buffer, 100, 4, 0) == 0);
    assert(MPI_File_write_at(file, 13, buffer, 1, 4, 0) == 5);
    assert(MPI_File_write_at_c(file, 20, buffer, 3000000000LL, 4, 0) == 0);
    assert(MPI_File_read_all(file, buffer, 7, 4, 0) == 0);
    assert(MPI_File_iread(file, buffer, 9, 4, &request) == 0 && request == 1);
    /* The library has none: an error, not a crash. */
    assert(MPI_File_write_shared(file, buffer, 1, 4, 0) != 0);
    assert(MPI_File_close(&file) == 0 && file == 0);
    return 0;
}
#endif
