// A vSphere that tests can ask for virtual machines: the simulator of VMware's own Go library, with two data centres.
//
// Prints its URL, then a line of JSON for each virtual machine, and ends with its standard input.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

type machine struct {
	Moref        string `json:"moref"`
	Uuid         string `json:"uuid"`
	InstanceUuid string `json:"instance_uuid"`
	Disk         string `json:"disk"`
	Snapshot     string `json:"snapshot"`
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve() error {
	model := simulator.VPX()
	model.Datacenter = 2
	defer model.Remove()
	if err := model.Create(); err != nil {
		return err
	}
	model.Service.TLS = new(tls.Config)
	model.Service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword("user", "secret")}
	server := model.Service.NewServer()
	machines, err := inventory(context.Background(), server.URL)
	if err != nil {
		return err
	}
	fmt.Println("https://" + server.URL.Host)
	for _, one := range machines {
		line, err := json.Marshal(one)
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// All virtual machines, each with a snapshot "first" and one "second" below it.
func inventory(ctx context.Context, address *url.URL) ([]machine, error) {
	client, err := govmomi.NewClient(ctx, address, true)
	if err != nil {
		return nil, err
	}
	container, err := view.NewManager(client.Client).CreateContainerView(
		ctx, client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		return nil, err
	}
	var found []mo.VirtualMachine
	if err := container.Retrieve(ctx, []string{"VirtualMachine"}, []string{"config"}, &found); err != nil {
		return nil, err
	}
	var machines []machine
	for _, one := range found {
		vm := object.NewVirtualMachine(client.Client, one.Self)
		for _, name := range []string{"first", "second"} {
			task, err := vm.CreateSnapshot(ctx, name, "", false, false)
			if err != nil {
				return nil, err
			}
			if err := task.Wait(ctx); err != nil {
				return nil, err
			}
		}
		var after mo.VirtualMachine
		pc := property.DefaultCollector(client.Client)
		if err := pc.RetrieveOne(ctx, one.Self, []string{"snapshot"}, &after); err != nil {
			return nil, err
		}
		disks := object.VirtualDeviceList(one.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil))
		backing := disks[0].GetVirtualDevice().Backing.(types.BaseVirtualDeviceFileBackingInfo)
		machines = append(machines, machine{
			Moref:        one.Self.Value,
			Uuid:         one.Config.Uuid,
			InstanceUuid: one.Config.InstanceUuid,
			Disk:         backing.GetVirtualDeviceFileBackingInfo().FileName,
			Snapshot:     after.Snapshot.CurrentSnapshot.Value,
		})
	}
	return machines, nil
}
