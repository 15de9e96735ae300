module goproxy

go 1.21
